"""Where utilization comes from: exporters, Prometheus, and what they answer."""
