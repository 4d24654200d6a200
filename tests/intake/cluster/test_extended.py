"""Requests for devices behind extended resources, by hand."""

from __future__ import annotations

from reprieve.engine.cluster.rows import ExtendedRequest
from tests.intake.cluster.objects import class_of, container, pod

GPU = "nvidia.com/gpu"
FPGA = "example.com/fpga"


def test_each_container_asks_for_itself() -> None:
    """Sorted names of a: cpu, example.com/fpga, nvidia.com/gpu; of b: nvidia.com/gpu."""
    found = class_of(
        pod(container("a", cpu="1", gpu="2", **{FPGA: "1"}), container("b", gpu=1))
    ).extended
    assert found == (
        ExtendedRequest(FPGA, "container-0-request-1", 1, ("a",)),
        ExtendedRequest(GPU, "container-0-request-2", 2, ("a",)),
        ExtendedRequest(GPU, "container-1-request-0", 1, ("b",)),
    )


def test_an_init_container_uses_what_comes_after_it() -> None:
    found = class_of(pod(container("a", gpu="2"), init=[container("i", gpu="2")])).extended
    assert found == (ExtendedRequest(GPU, "container-1-request-0", 2, ("a", "i")),)


def test_an_init_container_asks_for_what_is_missing_and_the_largest_serves_all() -> None:
    """i is 1 short of 4, j is 2 short of 5: one request of 2, named after j."""
    found = class_of(
        pod(container("a", gpu="3"), init=[container("i", gpu="4"), container("j", gpu="5")])
    ).extended
    assert found == (
        ExtendedRequest(GPU, "container-1-request-0", 2, ("i", "j")),
        ExtendedRequest(GPU, "container-2-request-0", 3, ("a", "i", "j")),
    )


def test_a_sidecar_before_an_init_container_is_no_help_to_it() -> None:
    init = [container("s", "Always", gpu="2"), container("i", gpu="2")]
    found = class_of(pod(container("a"), init=init)).extended
    assert found == (
        ExtendedRequest(GPU, "container-0-request-0", 2, ("s",)),
        ExtendedRequest(GPU, "container-1-request-0", 2, ("i",)),
    )


def test_only_extended_resources_count() -> None:
    names = {"hugepages-2Mi": "2Mi", "kubernetes.io/thing": "1", FPGA: "500m", GPU: "0"}
    assert class_of(pod(container("a", cpu="1", **names))).extended == ()
    implicit = "deviceclass.resource.kubernetes.io/gpu"
    found = class_of(pod(container("a", **{implicit: "1"}))).extended
    assert [each.resource for each in found] == [implicit]
