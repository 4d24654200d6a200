"""Reasons become the exact texts of conditions, events and messages, one module per dialect."""
