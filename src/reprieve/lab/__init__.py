"""The public face of Reprieve for Python: a cluster in memory, what it decides, and plugins.

Everything that is named in `__all__` here and in `reprieve.lab.plugins` is stable: it changes with
a major version only, and the release before states it. All other modules of `reprieve` are inner.

>>> from reprieve.lab import Cluster, apply, decide, explain
>>> cluster = Cluster.from_yaml('''
... apiVersion: v1
... kind: Node
... metadata: {name: node-0}
... status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "8"}}
... ---
... apiVersion: scheduling.k8s.io/v1
... kind: PriorityClass
... metadata: {name: urgent}
... value: 1000
... ---
... apiVersion: v1
... kind: Namespace
... metadata: {name: team}
... ''')
>>> pod = '''
... apiVersion: v1
... kind: Pod
... metadata: {name: %s, namespace: team}
... spec:
...   schedulerName: reprieve-scheduler
...   priorityClassName: %s
...   containers:
...   - name: main
...     image: example.org/train:1
...     resources: {requests: {cpu: "1", nvidia.com/gpu: "8"}, limits: {nvidia.com/gpu: "8"}}
... '''
>>> cluster = apply(decide(cluster, pod % ("sweep", '""')))
>>> decision = decide(cluster, pod % ("train", "urgent"))
>>> decision.verdict, decision.victims, decision.placements
(<Verdict.STARTS_WITH_VICTIMS: 'StartsWithVictims'>, ('Pod team/sweep',), {'train': 'node-0'})
>>> [each["metadata"]["name"] for each in apply(decision).objects("Pod")]
['train']
>>> waits = apply(decide(cluster, pod % ("late", '""')))
>>> print(explain(waits, "pod/late", "team").splitlines()[0])
Pod team/late waits: the nodes that it accepts are full, and no work on them is of lower priority:
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reprieve.lab.cluster import Cluster
    from reprieve.lab.decisions import Decision, Verdict, apply, decide, explain

__all__ = ["Cluster", "Decision", "Verdict", "apply", "decide", "explain"]

#: By name the module that has it: who imports `reprieve.lab.plugins` alone loads no plane.
_FROM = {
    "Cluster": "cluster",
    "Decision": "decisions",
    "Verdict": "decisions",
    "apply": "decisions",
    "decide": "decisions",
    "explain": "decisions",
}


def __getattr__(name: str) -> Any:
    """Return a public name, from the module that has it."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
