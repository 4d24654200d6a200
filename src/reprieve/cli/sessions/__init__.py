"""What a command runs beside itself: planes that are asked, clusters, pages."""
