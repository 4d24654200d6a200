"""A Kubernetes API server for tests, in this process, with the machines of a small cluster.

`kubelocal.running` starts both; `kubelocal.cluster` is the server with its switches, and
`kubelocal.machines` what imitates nodes, kubelets and controllers.
"""

__version__ = "1.0.0rc1"
