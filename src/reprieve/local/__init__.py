"""The embedded cluster: an API server in this process and the machines that live on it."""
