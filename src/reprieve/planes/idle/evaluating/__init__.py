"""Runs evaluations of the engine, and carries out what they decide."""
