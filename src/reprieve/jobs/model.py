"""What a row of the table of kinds states: where a kind keeps what queueing needs.

Paths are field names joined by dots; `*` stands for every item of a list or value of a map. Rows
are decoded from configuration as they are built here, so that a kind of a user's own needs no code.
A kind is held back in one of three ways: by a suspend field, by a scheduling gate (pods), or by the
gates of the pods that it makes (`passes_on`).

Source: specification of the quota plane, sections 10.2 and 10.4.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "Asked",
    "Beside",
    "Components",
    "JobKind",
    "Labelled",
    "PassesOn",
    "PodSetSource",
    "Progress",
    "Reaches",
    "Runtime",
    "Sidecar",
    "Test",
]


class _Row(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Common settings: camel case in configuration, unknown keys are refused."""


class Reaches(_Row, frozen=True):
    """The sum over some paths reaches the sum over others; a list counts its items.

    Without `of` it is the number of pods that is to be reached. `values`: texts at a path of `sum`
    that count one each.
    """

    sum: list[str]
    of: list[str] = []
    values: list[str] = []


class Test(_Row, frozen=True):
    """Holds where every part that is given holds.

    Attributes:
        condition: type of a condition that is True.
        lacks: type of a condition that is not.
        field: a path, whose value is one of `values`, or not one of `without`.
        positive: paths of which one is above zero.
        reaches: counts that are complete.
        also: a further test that holds.
        message: what is stated of a job of which this holds, where it is not the condition's.
    """

    __test__ = False  # no test of pytest's

    condition: str = ""
    lacks: str = ""
    field: str = ""
    values: list[str] = []
    without: list[str] = []
    positive: list[str] = []
    reaches: Reaches | None = None
    also: Test | None = None
    message: str = ""


class Beside(_Row, frozen=True):
    """Where there is something at `path`, the pods have another name, and are fewer."""

    path: str
    name: str
    fewer: int = 0


class Sidecar(_Row, frozen=True):
    """A container that the kind's controller adds where `when` holds.

    `resources` is the path of what it requests, `requests` what it requests without. One that runs
    when no other does stands as an init container (`alone`): the pod requests that much at least.
    """

    name: str
    when: Test
    resources: str = ""
    requests: dict[str, str] = {}
    alone: bool = False


class Asked(_Row, frozen=True):
    """What the container of a pod requests, where that stands in fields of the job.

    Attributes:
        container: its name.
        requests: path by resource; `limits` likewise.
        java: resources whose amounts are written as Java does (512m are 512 Mi).
        device: path of an object with name and quantity of a device.
        spark: role of a SparkApplication, whose cpu and memory Spark works out.
    """

    container: str
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    java: list[str] = []
    device: str = ""
    spark: str = ""


class PodSetSource(_Row, frozen=True):
    """Where pods of one shape are described.

    Attributes:
        template: path of the pod template, below each item where `each` is given.
        name: of the pod set; `name_from` is the path of it in the item.
        each: path of a list whose items are described one by one.
        counts: factors of the number of pods; each is the smallest of the paths that are there.
        default: the number of pods of a factor none of whose paths is there.
        least: path of a bound of the first factor that its controller raises it to; `most` is that
            of one that it lowers it to.
        beside: what another template changes about these pods.
        when: holds for jobs that have such pods.
        otherwise: the template where the job has none.
        sidecars: containers that are added.
        flat: labels, annotations, node selector and tolerations stand beside `template`, in the
            object at this path.
        asked: what the container requests, below `flat`.
        index: label that numbers its pods, those of one replica where `replica` is given.
        replica: label that numbers the replicas, of which the first of `counts` states how many.
        shifted: holds where another pod has the number 0, so that these begin with 1.
    """

    template: str
    name: str = "main"
    name_from: str = ""
    each: str = ""
    counts: list[list[str]] = []
    default: int = 1
    least: str = ""
    most: str = ""
    beside: Beside | None = None
    when: Test | None = None
    otherwise: dict[str, Any] = {}
    sidecars: list[Sidecar] = []
    flat: str = ""
    asked: Asked | None = None
    index: str = ""
    replica: str = ""
    shifted: Test | None = None


class Progress(_Row, frozen=True):
    """Pods that will not be needed any more: a list with the finished replicas of each pod set."""

    each: str
    succeeded: str = "succeeded"
    name: str = "name"


class Labelled(_Row, frozen=True):
    """Pods of a job by a label that its controller gives them.

    `names`: paths in the job at which the label's values stand.
    """

    label: str
    names: list[str] = msgspec.field(default_factory=lambda: ["metadata.name"])


class Components(_Row, frozen=True):
    """A kind that wraps other objects: where they are, and what is declared of their pods.

    Attributes:
        each: path of the list of components.
        template: path of the wrapped object in one of them.
        declared: path of the list of its pod sets, each with `replicas` and the `path` of the
            template in the component. Without one the wrapped object's own row states it.
        injected: path of the list for what admission injects into the pods.
    """

    each: str
    template: str = "template"
    declared: str = "podSets"
    injected: str = "podSetInfos"


class Runtime(_Row, frozen=True):
    """A kind whose pods are described by another object, and patched by this one.

    Attributes:
        name: path of the other object's name; `kind` of its kind, the first of `kinds` without.
        kinds: kind, API version, plural; and whether it is namespaced.
        patches: path of the list of patches, one of which is ours.
    """

    name: str
    kind: str
    kinds: list[tuple[str, str, str, bool]]
    patches: str


class PassesOn(_Row, frozen=True):
    """How a kind has the pods that it makes gated: its templates state so.

    Attributes:
        templates: paths of its pod templates; each records who gates the pods.
        queue: whether they get the queue name and the class.
        managed: whether each pod is a workload of its own.
        serving: whether templates state that the group never ends.
        total: path of the number of pods in a group; without one there are no groups.
        groups: path of the number of groups, each with a Workload; without one there is one group.
        set_label: label of a pod with the name of its owner; without, the controller's name counts.
        index_label: label of a pod with the number of its group; `index_else` where it lacks it.
        follower: annotation of pods that are not the first of their group.
        busy: path of a count above zero while the queue name must stay.
    """

    templates: list[str]
    queue: bool = False
    managed: bool = False
    serving: bool = False
    total: str = ""
    groups: str = ""
    set_label: str = ""
    index_label: str = ""
    index_else: str = ""
    follower: str = ""
    busy: str = "status.readyReplicas"


class JobKind(_Row, frozen=True):
    """One kind.

    Attributes:
        framework: the name in `integrations.frameworks`.
        suspend: path of the field that is true while the job is stopped.
        gate: name of the scheduling gate, for pods.
        passes_on: how its pods are gated, for what has neither.
        pod_sets: in the order of the Workload's; what is not described in an object has no pods.
        components: objects that it wraps; instead of pod sets.
        runtime: the object that describes its pods; instead of pod sets.
        succeeded: tests of which one holds for a job that ended well; `failed` likewise.
        ready: tests of which one holds when all pods are ready.
        active: tests of which one holds while there are pods.
        pods: how its pods are found where `active` may state too early that there are none.
        marked: whether pods are found by what admission gave them, too; not where `pods` or
            `active` covers all of them at any time.
        on_hold: tests of which one holds while it needs no quota, and will not start.
        unmanaged: tests of which one holds for a job that is left alone.
        progress: replicas that have succeeded and whose quota is free.
        message: path of the text about the end, where it is not a condition's.
        priority: paths of priority class names that come before those of the pods.
        min_count: annotation with the least number of pods to start with.
        equal_count: annotation by which `parallelism` and `completions` change together.
        dropped_labels: labels of pods that the kind's own controller adds.
        clear_status: path that is to be null before a template is restored.
        stopping: annotation of a job that another controller left half stopped.
        children_only: pods that nothing stands above are left gated.
        feature: gate without which the kind is not queued even where it is listed.
    """

    api_version: str
    kind: str
    plural: str
    framework: str
    suspend: str = ""
    gate: str = ""
    passes_on: PassesOn | None = None
    pod_sets: list[PodSetSource] = []
    components: Components | None = None
    runtime: Runtime | None = None
    succeeded: list[Test] = []
    failed: list[Test] = []
    ready: list[Test] = []
    active: list[Test] = []
    pods: list[Labelled] = []
    marked: bool = True
    on_hold: list[Test] = []
    unmanaged: list[Test] = []
    progress: Progress | None = None
    message: str = ""
    priority: list[str] = []
    min_count: str = ""
    equal_count: str = ""
    dropped_labels: list[str] = []
    clear_status: str = ""
    stopping: str = ""
    children_only: bool = False
    feature: str = ""

    @property
    def group(self) -> str:
        """The API group, empty for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        """`Kind.version.group`, as external frameworks are written."""
        group, _, version = self.api_version.rpartition("/")
        return f"{self.kind}.{version}.{group}" if group else f"{self.kind}.{version}"

    @property
    def text(self) -> str:
        """`batch/v1, Kind=Job`, as messages name a kind."""
        return f"{self.api_version if self.group else '/' + self.api_version}, Kind={self.kind}"
