"""The controllers of workloads: those of Kubernetes and those of the job families."""
