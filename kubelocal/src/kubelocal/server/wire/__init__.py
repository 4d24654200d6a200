"""HTTP: requests, answers, watches, discovery and TLS."""
