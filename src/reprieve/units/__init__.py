"""Ids, references, the steady clock, YAML and the error outline, on `kubeworld.units`."""
