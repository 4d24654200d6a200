"""Where a pod can be placed: filters, scores and the simulation that they read."""
