"""Reads each kind once for all planes of the process."""
