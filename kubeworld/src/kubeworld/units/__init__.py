"""Quantities, durations, instants, untrusted text and the clock."""
