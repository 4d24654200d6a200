"""What a row of the table of kinds says: where a kind keeps what queueing needs.

Paths are field names joined by dots; `*` stands for every item of a list or value of a map. Rows
are decoded from configuration as they are built here, so that a kind of a user's own needs no code.

Source: specification of the quota plane, section 10.2.
"""

from __future__ import annotations

import msgspec

__all__ = ["JobKind", "PodSetSource", "Reaches", "Test"]


class _Row(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Common settings: camel case in configuration, unknown keys are refused."""


class Reaches(_Row, frozen=True):
    """The sum over some paths reaches the sum over others; a list counts its items.

    Without `of` it is the number of pods that is to be reached.
    """

    sum: list[str]
    of: list[str] = []


class Test(_Row, frozen=True):
    """Holds where every part that is given holds.

    Attributes:
        condition: type of a condition that is True.
        field: a path, whose value is one of `values`, or not one of `without`.
        positive: paths of which one is above zero.
        reaches: counts that are complete.
    """

    __test__ = False  # no test of pytest's

    condition: str = ""
    field: str = ""
    values: list[str] = []
    without: list[str] = []
    positive: list[str] = []
    reaches: Reaches | None = None


class PodSetSource(_Row, frozen=True):
    """Where pods of one shape are described.

    Attributes:
        template: path of the pod template, below each item where `each` is given.
        name: of the pod set; `name_from` is the path of it in the item.
        each: path of a list whose items are described one by one.
        counts: factors of the number of pods; each is the smallest of the paths that are there.
        default: the number of pods of a factor none of whose paths is there.
    """

    template: str
    name: str = "main"
    name_from: str = ""
    each: str = ""
    counts: list[list[str]] = []
    default: int = 1


class JobKind(_Row, frozen=True):
    """One kind.

    Attributes:
        framework: the name in `integrations.frameworks`.
        suspend: path of the field that is true while the job is stopped.
        pod_sets: in the order of the Workload's; what is not described in an object has no pods.
        succeeded: tests of which one holds for a job that ended well; `failed` likewise.
        ready: tests of which one holds when all pods are ready.
        active: tests of which one holds while there are pods.
        message: path of the text about the end, where it is not a condition's.
        min_count: annotation with the least number of pods to start with.
        equal_count: annotation by which `parallelism` and `completions` change together.
        dropped_labels: labels of pods that the kind's own controller adds.
        clear_status: path that is to be null before a template is put back.
        controller: the component in events, `KIND-kueue-controller` without.
    """

    api_version: str
    kind: str
    plural: str
    framework: str
    suspend: str
    pod_sets: list[PodSetSource]
    succeeded: list[Test] = []
    failed: list[Test] = []
    ready: list[Test] = []
    active: list[Test] = []
    message: str = ""
    min_count: str = ""
    equal_count: str = ""
    dropped_labels: list[str] = []
    clear_status: str = ""

    @property
    def group(self) -> str:
        """The API group, empty for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> str:
        """`Kind.version.group`, as external frameworks are written."""
        group, _, version = self.api_version.rpartition("/")
        return f"{self.kind}.{version}.{group}" if group else f"{self.kind}.{version}"
