"""Find the layer where the output tears, by running hybrids of reference and candidate."""
