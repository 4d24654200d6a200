"""What is decided: pure functions over snapshots. No I/O, clock, randomness or API types."""
