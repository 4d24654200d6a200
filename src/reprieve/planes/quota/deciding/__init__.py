"""Runs cycles of the engine, and carries out what they decide."""
