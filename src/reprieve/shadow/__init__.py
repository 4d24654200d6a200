"""Recorded decisions made again under another policy, one at a time."""
