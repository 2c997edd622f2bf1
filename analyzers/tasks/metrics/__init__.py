"""One file per way of scoring a network over a set of samples."""
