"""The process: its table of planes, its lease and its telemetry."""
