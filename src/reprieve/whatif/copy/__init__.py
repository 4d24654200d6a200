"""The copy of a cluster that the planes write to, and the wire through which they do."""
