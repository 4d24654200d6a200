"""Pending workloads: their order, their requeuing and their backoff."""
