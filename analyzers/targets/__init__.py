"""What devices can do and what it costs there: one YAML file per target, see docs/targets.md."""
