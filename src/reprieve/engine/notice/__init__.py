"""Notice before an eviction: how long a unit is given, and what it may report meanwhile."""
