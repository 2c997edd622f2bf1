"""Find the smallest set of layers that, kept out of INT8, brings the score back - and prove it."""
