"""Kinds of jobs that can be queued: one declarative table, and how an object is read by it."""
