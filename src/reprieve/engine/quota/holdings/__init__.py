"""The quota tree, and what holds quota in it."""
