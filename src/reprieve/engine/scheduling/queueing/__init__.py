"""The scheduling queue: entries, their places, turns and wakers."""
