"""What a command runs beside itself: planes that are queried, clusters, pages."""
