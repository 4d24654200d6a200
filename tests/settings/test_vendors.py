"""`gpuPreemption.vendors`: names, entries of one's own, and errors that say what to write."""

from __future__ import annotations

import pytest

from reprieve.engine.idle.vendors import AMD, INTEL, NVIDIA, UtilizationMetric
from reprieve.settings.vendors import parse_vendors
from reprieve.units.errors import UsageError


@pytest.mark.parametrize("value", [None, ""])
def test_amd_alone_is_watched_by_default(value: object) -> None:
    assert parse_vendors(value) == (AMD,)


@pytest.mark.parametrize("value", [["amd", "nvidia", "intel"], "amd, nvidia,intel"])
def test_known_vendors_are_switched_on_by_name(value: object) -> None:
    assert parse_vendors(value) == (AMD, NVIDIA, INTEL)


def test_an_entry_under_a_known_name_keeps_what_it_leaves_out() -> None:
    (vendor,) = parse_vendors([{"name": "amd", "metrics": ["amd_gpu_gfx_activity"]}])
    assert vendor.metrics == (UtilizationMetric("amd_gpu_gfx_activity", 1.0),)
    assert (vendor.resources, vendor.pod_labels) == (AMD.resources, AMD.pod_labels)


def test_an_entry_under_a_new_name_extends_the_table() -> None:
    _, vendor = parse_vendors(
        [
            "amd",
            {
                "name": "acme",
                "resources": ["acme.example/gpu", "acme.example/part-*"],
                "notDevices": ["acme.example/part-memory"],
                "deviceClasses": ["*.acme.example"],
                "metrics": [{"name": "acme_busy", "scale": "ratio"}, {"name": "b", "scale": 0.1}],
                "labels": {"pod": ["p"], "namespace": ["n"], "gpu": ["card"]},
            },
        ]
    )
    assert vendor.metrics == (UtilizationMetric("acme_busy", 100.0), UtilizationMetric("b", 0.1))
    assert (vendor.namespace_labels, vendor.pod_labels, vendor.gpu_labels) == (
        ("n",),
        ("p",),
        ("card",),
    )
    assert [
        vendor.owns(f"acme.example/{name}") for name in ("gpu", "part-1", "part-memory", "nic")
    ] == [True, True, False, False]
    by_class = "deviceclass.resource.kubernetes.io/{}.acme.example"
    assert (vendor.owns(by_class.format("large")), vendor.selects("gpu.amd.com")) == (True, False)


@pytest.mark.parametrize(
    ("resource", "owner"),
    [
        ("amd.com/gpu", "amd"),
        ("amd.com/gpu-0", "amd"),
        ("nvidia.com/gpu", "nvidia"),
        ("nvidia.com/mig-1g.10gb", "nvidia"),
        ("nvidia.com/gpumem", None),
        ("gpu.intel.com/i915", "intel"),
        ("gpu.intel.com/xe", "intel"),
        ("gpu.intel.com/millicores", None),
        ("gpu.intel.com/i915_monitoring", None),
        ("cpu", None),
        ("deviceclass.resource.kubernetes.io/gpu.amd.com", "amd"),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "nvidia"),
        ("deviceclass.resource.kubernetes.io/mig.nvidia.com", "nvidia"),
        ("deviceclass.resource.kubernetes.io/gpu.intel.com", "intel"),
        ("deviceclass.resource.kubernetes.io/nic.example.com", None),
    ],
)
def test_each_resource_name_has_one_owner(resource: str, owner: str | None) -> None:
    owners = [vendor.name for vendor in (AMD, NVIDIA, INTEL) if vendor.owns(resource)]
    assert owners == ([owner] if owner else [])


GOOD = {"name": "acme", "resources": ["acme.example/gpu"], "metrics": ["busy"]}


@pytest.mark.parametrize(
    ("value", "place", "accepted"),
    [
        ("amd,novidia", "vendors[1]", "amd, nvidia, intel"),
        ([], "vendors", "amd, nvidia, intel"),
        (7, "vendors", "amd, nvidia, intel"),
        ([7], "vendors[0]", "amd, nvidia, intel"),
        (["amd", "amd"], "vendors", "once"),
        (["amd", GOOD | {"metrics": ["gpu_gfx_activity"]}], "vendors", "once"),
        ([GOOD | {"name": ""}], "vendors[0].name", "not empty"),
        ([GOOD | {"colour": "red"}], "vendors[0]", "resources"),
        ([{"name": "acme", "metrics": ["busy"]}], "vendors[0].resources", "needs it"),
        ([{"name": "acme", "resources": ["a.b/c"]}], "vendors[0].metrics", "needs it"),
        ([GOOD | {"resources": ["gpu"]}], "vendors[0].resources", "DOMAIN/NAME"),
        ([GOOD | {"resources": "acme.example/gpu"}], "vendors[0].resources", "a list"),
        ([GOOD | {"deviceClasses": "gpu"}], "vendors[0].deviceClasses", "a list"),
        ([GOOD | {"metrics": []}], "vendors[0].metrics", "a list"),
        ([GOOD | {"metrics": [7]}], "vendors[0].metrics[0]", "a metric name"),
        ([GOOD | {"metrics": [{"name": ""}]}], "vendors[0].metrics[0].name", "metric family"),
        ([GOOD | {"metrics": [{"name": "a", "scale": "x"}]}], "metrics[0].scale", "ratio"),
        ([GOOD | {"metrics": [{"name": "a", "scale": 0}]}], "metrics[0].scale", "ratio"),
        ([GOOD | {"metrics": [{"name": "a", "scale": True}]}], "metrics[0].scale", "ratio"),
        ([GOOD | {"metrics": [{"nmae": "a"}]}], "metrics[0]", "name, scale"),
        ([GOOD | {"labels": {"pods": ["a"]}}], "vendors[0].labels", "namespace, pod"),
        ([GOOD | {"labels": {"pod": "a"}}], "vendors[0].labels.pod", "a list of label names"),
        ([GOOD | {"labels": ["a"]}], "vendors[0].labels", "namespace, pod"),
    ],
)
def test_a_bad_entry_is_refused_with_place_and_choice(
    value: object, place: str, accepted: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_vendors(value)
    message = str(refusal.value)
    assert place in message
    assert accepted in message.split(place, 1)[1]
    assert "\n" not in message
