"""What exporters say of GPUs that are shared or partitioned."""

from __future__ import annotations

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import SECOND
from reprieve.engine.idle.vendors import AMD, HAMI, NVIDIA
from reprieve.intake.exposition import parse_exposition, parse_samples
from reprieve.planes.idle.measures.metric_sources import Reading, Target, metric_source
from reprieve.planes.idle.measures.scraper import PodKey, Poll, Scraper
from tests.scraper import pages
from tests.scraper.test_scraper import Services

ALL = (AMD, NVIDIA, HAMI)


OTHER = "GPU-2"


class Page:
    """A reader that answers with one page."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def read(self, target: Target) -> Reading:
        return Reading(target, parse_exposition(self._text.encode(), ALL))


async def polled(text: str) -> Poll:
    source = metric_source("http://exporter/metrics")
    poller = Scraper(
        [source], Services(), Page(text), VirtualClock(), 15 * SECOND, lambda poll: None
    )
    return await poller.poll()


async def sharing(text: str) -> dict[str, dict[str, set[str]]]:
    poll = await polled(text)
    return {
        pod.name: {device: {each.name for each in several} for device, several in found.items()}
        for pod, found in poll.sharing.items()
        if pod == PodKey("team", pod.name)
    }


async def test_one_device_that_is_reported_for_several_pods_is_shared() -> None:
    text = (
        pages.dcgm({"a": "0", "b": "1"}, "0.7")
        + (pages.dcgm({"c": "0"}, "0.1", gpu="1", uuid="GPU-2").split("\n", 2)[2])
    )
    assert await sharing(text) == {
        "a": {pages.UUID: {"a", "b"}},
        "b": {pages.UUID: {"a", "b"}},
    }


async def test_a_shared_device_is_used_as_much_as_by_the_pod_that_uses_it_most() -> None:
    page = "".join(
        [
            pages.dcgm({"a": "0"}, "0.01"),
            *(
                pages.dcgm({pod: "0"}, value, uuid=uuid).split("\n", 2)[2]
                for pod, value, uuid in (
                    ("b", "0.8", pages.UUID),
                    ("c", "0.02", OTHER),
                    ("a", "0.03", OTHER),
                    ("alone", "0.5", "GPU-3"),
                )
            ),
        ]
    )
    poll = await polled(page)
    assert {
        pod.name: [round(each.utilization) for each in found] for pod, found in poll.samples.items()
    } == {"a": [80, 3], "b": [80], "c": [3], "alone": [50]}


async def test_replicas_of_one_device_in_one_pod_are_one_device() -> None:
    text = pages.dcgm({"a": "0"}, "0.7")
    again = text.splitlines()[-1].replace('vgpu="0"', 'vgpu="1"')
    assert await sharing(f"{text}{again}\n") == {}


async def test_gpus_of_one_number_on_two_nodes_are_two_devices() -> None:
    other = pages.dcgm({"b": "0"}, "0.7", uuid="GPU-2").split("\n", 2)[2]
    assert await sharing(pages.dcgm({"a": "0"}, "0.7") + other) == {}


async def test_partitions_of_one_gpu_are_devices_of_their_own() -> None:
    text = pages.amd("a", "0", "dpx", "50") + pages.amd("b", "1", "dpx", "50")
    assert await sharing(text) == {}


@pytest.mark.parametrize(
    ("mode", "activity", "instantaneous", "read"),
    [
        ("spx", "40", ("10", "90"), [40.0]),
        ("none", "40", ("10",), [40.0]),
        ("", "40", ("10",), [40.0]),
        ("cpx", "40", ("10", "90"), [10.0, 90.0]),
        ("DPX", "40", (), [40.0]),
        ("spx", "", ("10",), [10.0]),
        ("cpx", "40", ("65535",), [40.0]),
    ],
    ids=["whole", "none", "unsaid", "partition", "older exporter", "alone", "not available"],
)
def test_a_partition_is_read_from_its_own_metric_and_a_whole_gpu_from_that_of_the_guide(
    mode: str, activity: str, instantaneous: tuple[str, ...], read: list[float]
) -> None:
    text = pages.amd("a", "1", mode, activity, *instantaneous).encode()
    assert [sample.utilization for sample in parse_samples(text, [AMD])] == read


@pytest.mark.parametrize("page", [pages.hami, pages.hami_before])
async def test_what_shares_use_is_read_from_hami_and_is_nobody_elses(page: object) -> None:
    text = page("a", "30") + page("b", "0").split("\n", 1)[1]  # type: ignore[operator]
    found = parse_samples(text.encode(), [HAMI])
    assert [(s.namespace, s.pod, s.gpu_id, s.utilization) for s in found] == [
        ("team", "a", pages.UUID, 30.0),
        ("team", "b", pages.UUID, 0.0),
    ]
    assert await sharing(text) == {}
