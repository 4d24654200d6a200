"""What the operator reports about itself: metrics, probes and log lines."""
