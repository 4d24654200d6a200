"""Reconciles queued pods: single ones, groups, and the sets that make them."""
