"""What a network is for: how images become its input, how its outputs become detections, and their score."""
