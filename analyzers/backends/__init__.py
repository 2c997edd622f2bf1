"""Where models run: one file per runtime."""
