"""What the page shows of preemptions, from their records: masked, decided again, summed."""
