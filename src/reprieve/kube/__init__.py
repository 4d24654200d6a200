"""The Kubernetes client: credentials, transport, resources, reflectors, caches, leases, events."""
