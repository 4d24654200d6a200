"""Writes: create, update, patch, apply, delete and subresources."""
