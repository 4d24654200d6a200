"""A plan of any size becomes objects of a bounded one, and the same plan again."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest

from reprieve.api.reprieve import (
    Action,
    Guard,
    ObjectRef,
    PartSpec,
    Placement,
    PreemptionSpec,
    Proof,
    Victim,
)
from reprieve.records.plans.parts import (
    SIZES,
    PartsMissing,
    Sizes,
    Split,
    joined,
    left,
    split,
    whole,
)

NAME = "scheduling-0a1b2c3d-0000-4000-8000-000000000000-7"
AT = "2026-03-04T10:15:00Z"
MIB = 1024 * 1024
#: What the API server adds to an object: name, uid, labels, and who wrote which field.
ADDED = 16 * 1024


def uid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128)))


def pod(random: Random, name: str, namespace: str = "team-a") -> ObjectRef:
    return ObjectRef("v1", "Pod", name, uid(random), namespace)


def victims(number: int, unit: int = 0) -> list[Victim]:
    """Return pods as a StatefulSet calls them, in units of `unit`, 0 for none."""
    random = Random(number)
    found = []
    for index in range(number):
        root = pod(random, f"llama-pretraining-worker-{index:05}")
        amounts = {"cpu": 8000, "memory": 64 << 30, "nvidia.com/gpu": 1, "pods": 1}
        group = f"team-a/llama-pretraining-{index // unit}" if unit else ""
        found.append(Victim(root, root, amounts, "lower priority", unit=group))
    return found


def spec(found: list[Victim], **rest: Any) -> PreemptionSpec:
    return PreemptionSpec("scheduling", "p1", 7, Proof("Placement"), found, AT, **rest)


def size(obj: object) -> int:
    return len(msgspec.json.encode(obj))


def again(apart: Split) -> PreemptionSpec:
    """Return the spec as a reader puts it together from what was stored."""
    stored = msgspec.json.decode(msgspec.json.encode(apart.head), type=PreemptionSpec)
    parts = [
        msgspec.json.decode(msgspec.json.encode(part.spec), type=PartSpec)
        for part in (*apart.inputs, *reversed(apart.parts))
    ]
    return whole(stored, parts)


def test_a_small_plan_is_one_object_that_names_each_victim_in_full() -> None:
    small = spec(victims(20), input={"data": "x" * 500})
    assert split(NAME, "ns", small) == Split(small)


@pytest.mark.parametrize("unit", [0, 2, 8])
@pytest.mark.parametrize("number", [100, 800, 4_000, 16_000, 100_000])
def test_no_object_exceeds_one_mebibyte_and_no_victim_150_bytes(number: int, unit: int) -> None:
    random = Random(1)
    members = number // 8
    places = [Placement(uid(random), f"node-{index:05}") for index in range(members)]
    large = spec(victims(number, unit), placement=places)
    apart = split(NAME, "ns", large)
    assert size(apart.head) <= SIZES.head
    assert max(size(part) for part in apart.parts) + ADDED <= MIB
    placed = sum(size(place) + 1 for place in places)
    total = size(apart.head) + sum(size(part) for part in apart.parts) - placed
    assert total / number <= 150
    written = sum(size(part.spec) for part in apart.parts)
    assert len(apart.parts) <= -(-written * 11 // (10 * SIZES.part)), "parts are filled"
    assert again(apart) == large


def test_a_part_keeps_why_its_victims_got_no_notice() -> None:
    found = victims(4_000)
    some = [
        msgspec.structs.replace(each, notice_withheld="NotWorthIt") if index % 3 else each
        for index, each in enumerate(found)
    ]
    apart = split(NAME, "ns", spec(some))
    assert apart.parts and again(apart).victims == some


def idle_victims(number: int) -> list[Victim]:
    """Return Jobs whose GpuWorkloads are marked, as the idle plane names them."""
    random, found = Random(number), []
    why = "Preempted to free 32000 amd.com/gpu for pending workload job-pretraining-0a1b2c3d"
    for index in range(number):
        root = ObjectRef("batch/v1", "Job", f"batch-inference-{index:05}", uid(random), "team-a")
        name = f"job-{root.name}-{root.uid[:8]}"
        kind = "kaiwo.silogen.ai/v1alpha1", "GpuWorkload"
        subject = ObjectRef(*kind, name, uid(random), "team-a")
        found.append(Victim(subject, root, {"amd.com/gpu": 8}, "oldest idle", why))
    return found


def quota_victims(number: int) -> list[Victim]:
    random, found = Random(number), []
    for index in range(number):
        kind, name = "kueue.x-k8s.io/v1beta2", f"job-batch-inference-{index:05}-3f1c2"
        root = ObjectRef(kind, "Workload", name, uid(random), "team-a")
        rule, action = "InCohortReclamation", Action.SUSPEND
        found.append(Victim(root, root, {"cpu": 8000}, rule, "", action))
    return found


@pytest.mark.parametrize("made", [idle_victims, quota_victims])
@pytest.mark.parametrize("number", [300, 16_000])
def test_what_other_planes_say_of_a_victim_takes_no_more(made: Any, number: int) -> None:
    found = made(number)
    demand = Guard(pod(Random(9), "demand"), ["PendingGpu"])
    guards = [demand, *(Guard(victim.subject, ["Idle"]) for victim in found)]
    large = spec(found, guards=guards)
    apart = split(NAME, "ns", large)
    assert max(map(size, (apart.head, *apart.parts))) + ADDED <= MIB
    assert (size(apart.head) + sum(map(size, apart.parts))) / number <= 150
    assert again(apart) == large


def test_the_input_stands_apart_from_the_victims() -> None:
    data = "".join(Random(2).choices("abcdefgh", k=3 * MIB))
    recorded = {"version": 1, "encoding": "zlib+base64", "data": data, "sha256": "0"}
    apart = split(NAME, "ns", spec(victims(3), input=recorded))
    assert len(apart.head.victims) == 3 and not apart.parts
    assert apart.head.input == {"version": 1, "encoding": "zlib+base64", "sha256": "0"}
    assert len(apart.inputs) == 4
    assert max(size(part) for part in apart.inputs) + ADDED <= MIB
    assert not any(part.spec.victims for part in apart.inputs)
    assert again(apart) == spec(victims(3), input=recorded)


def test_a_part_is_the_same_object_each_time_and_another_one_for_a_later_decision() -> None:
    first = split(NAME, "ns", spec(victims(500)))
    assert split(NAME, "ns", spec(victims(500))) == first
    later = msgspec.structs.replace(spec(victims(500)), decided_at="2026-03-04T10:15:01Z")
    names = {part.metadata.name for part in first.parts}
    assert not names & {part.metadata.name for part in split(NAME, "ns", later).parts}


def _some(random: Random) -> PreemptionSpec:
    """Return a plan with everything that a plan can have."""
    found = []
    for index in range(random.randrange(60)):
        root = ObjectRef(
            random.choice(("v1", "batch/v1")),
            random.choice(("Pod", "Job")),
            f"w{index}-" + "x" * random.randrange(200),
            uid(random),
            random.choice(("a", "b", "")),
        )
        names = (f"s{index}", f"job-{root.name}-{root.uid[:8]}", root.name)
        subject = root if random.random() < 0.5 else pod(random, random.choice(names))
        found.append(
            Victim(
                subject,
                root,
                random.choice(({}, {"gpu": 8}, {"gpu": 1, "cpu": 2})),
                random.choice(("oldest idle", "lower priority")),
                random.choice(("", "Preempted to free 8 gpu \N{LINE SEPARATOR} soon")),
                random.choice(tuple(Action)),
                random.choice(("", "", "a/one", "a/two", "b/three")),
            )
        )
    often = random.random()
    phases = (["Idle"], ["Idle"], ["Idle", "Active"])
    guards = [
        Guard(each.subject, random.choice(phases)) for each in found if random.random() < often
    ]
    if random.random() < 0.3:
        guards.insert(0, Guard(pod(random, "demand"), ["PendingGpu"]))
    if random.random() < 0.2:
        random.shuffle(guards)
    places = [Placement(uid(random), "node") for _ in range(random.randrange(20))]
    return spec(found, guards=guards, placement=places)


def test_whatever_stands_in_a_plan_comes_back_in_its_order() -> None:
    random = Random(3)
    several = 0
    for _ in range(300):
        wanted = _some(random)
        sizes = Sizes(head=random.randrange(4_000), part=random.randrange(1_200, 4_000))
        apart = split(NAME, "ns", wanted, sizes)
        several += len(apart.parts) > 2
        assert again(apart) == wanted
        assert all(
            part.spec.victims or part.spec.placement or part.spec.guards for part in apart.parts
        )
        assert all(size(part.spec) <= sizes.part for part in apart.parts)
    assert several >= 100


def test_a_plan_whose_parts_are_not_all_there_is_no_plan() -> None:
    apart = split(NAME, "ns", spec(victims(900)), Sizes(part=20_000))
    parts = [part.spec for part in apart.parts]
    assert len(parts) > 3
    for missing in range(len(parts)):
        with pytest.raises(PartsMissing):
            joined(apart.head, parts[:missing] + parts[missing + 1 :])
    other = msgspec.structs.replace(parts[0], plan_id="p2")
    with pytest.raises(PartsMissing):
        joined(apart.head, [other, *parts[1:]])


def test_of_a_plan_whose_parts_are_not_all_there_the_others_can_be_read() -> None:
    planned = spec(victims(900))
    apart = split(NAME, "ns", planned, Sizes(part=20_000))
    parts = [part.spec for part in apart.parts]
    torn = msgspec.structs.replace(parts[1], victims="no JSON")
    for missing, lost in ((parts[1:], parts[:1]), ([parts[0], torn, *parts[2:]], parts[1:2])):
        gone = {each.root.uid for part in lost for each in left(apart.head, [part]).victims}
        found = left(apart.head, missing)
        assert gone
        assert found.victims == [each for each in planned.victims if each.root.uid not in gone]
        assert (found.parts, found.number_of_victims) == (apart.head.parts, 900)


def test_an_input_whose_parts_are_not_all_there_is_told_and_the_plan_is_whole() -> None:
    planned = spec(victims(3), input={"version": 1, "data": "x" * 50_000})
    apart = split(NAME, "ns", planned, Sizes(part=20_000))
    assert len(apart.inputs) == 3
    found = whole(apart.head, [part.spec for part in (*apart.inputs[1:], *apart.parts)])
    assert found.victims == planned.victims
    assert found.input == {"version": 1, "unwritten": "2 of 3 parts of it are there"}
