"""Keeps one Workload for each job, and starts and stops jobs as it is admitted and evicted."""
