"""Rendered scenes: a calibration set, an evaluation set and two bad calibration sets, with their script."""
