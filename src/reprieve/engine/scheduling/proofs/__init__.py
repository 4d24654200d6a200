"""Checks a plan independently of the search that made it."""
