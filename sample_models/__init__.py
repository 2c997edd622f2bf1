"""The sample networks that Tearline ships, the scripts that made them, and the demo's paths."""
