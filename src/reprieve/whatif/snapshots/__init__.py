"""What a cluster held, kept in memory and in files."""
