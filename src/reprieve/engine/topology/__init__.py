"""Topology-aware assignment: which domains of a tree of nodes the pods of a workload get.

Source: specification of the quota plane's topology-aware scheduling.
"""
