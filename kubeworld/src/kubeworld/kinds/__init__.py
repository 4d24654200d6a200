"""The kinds whose controllers are not part of Kubernetes, and what they make of an object."""
