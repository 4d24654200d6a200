"""Kubernetes objects into the rows that the cluster's columns are made of, one function per kind."""
