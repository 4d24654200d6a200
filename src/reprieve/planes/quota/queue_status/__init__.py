"""Writes the status of queues and cohorts, and their metrics."""
