"""Kubernetes objects into the rows that a cluster is made of, one function per kind."""
