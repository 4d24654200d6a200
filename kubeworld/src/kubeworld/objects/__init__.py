"""What objects say: paths, owners, conditions, selectors, phases, requests, quality of service."""
