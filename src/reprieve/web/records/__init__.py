"""What the page tells of preemptions, from their records: masked, decided again, summed."""
