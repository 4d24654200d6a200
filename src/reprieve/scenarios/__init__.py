"""Scenario files: an operator, a cluster and people's actions, played and checked in order."""
