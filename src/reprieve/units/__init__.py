"""Quantities, durations, instants, ids, the clock and the error outline. Imports nothing of ours."""
