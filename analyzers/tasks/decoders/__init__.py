"""One file per way of reading detections from a network's outputs."""
