"""Stand-ins for the controllers of a cluster: what makes and ends pods in a what-if."""
