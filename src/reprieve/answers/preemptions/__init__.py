"""What became of preemptions: records, Disruptions and notices, told to those who ask."""
