"""Writes the status of Workloads, and reports why they wait."""
