"""What is decided: pure functions over snapshots. No I/O, clock, randomness, logging, or API types."""
