"""Quantities, durations, instants, ids, the clock and the error outline. No imports."""
