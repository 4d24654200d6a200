"""Steppers that imitate nodes, kubelets, a scheduler and the workload controllers.

Each machine is level-triggered: it marks keys dirty when an object changes and looks at one key at
a time, comparing what is with what should be. All of them work through `objects.Objects`, so they
run on the embedded store as well as against a real API server (`run.IN_CONTROLLER_MANAGER` names
those that a real controller manager replaces). What manifests may script is in `simulation`, kinds
whose controllers are not part of Kubernetes are rows of `families`.
"""
