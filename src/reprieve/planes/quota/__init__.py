"""The quota plane on a cluster: Kueue's objects in, admissions and preemptions out."""
