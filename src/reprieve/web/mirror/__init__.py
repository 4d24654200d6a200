"""What the page knows of a cluster: slim records, and sums kept as they change."""
