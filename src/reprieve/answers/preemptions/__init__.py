"""What became of preemptions: records, Disruptions and notices, reported on query."""
