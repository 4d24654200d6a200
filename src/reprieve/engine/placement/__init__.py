"""Where a pod can go: filters, scores and the simulation that they read."""
