"""What objects state: paths, owners, conditions, selectors, phases, requests, QoS classes."""
