"""Finds nodes for the members of a unit, one after the other or all together."""
