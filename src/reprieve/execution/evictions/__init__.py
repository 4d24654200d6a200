"""The adapter to the Eviction API: pods whose eviction others request are given notice first."""
