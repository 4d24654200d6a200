"""What `docs/quota.md` says of options, settings and kinds is what is accepted, and as it says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from kubelocal.cluster import EmbeddedCluster
from kubeworld.units.clock import SystemClock
from kubeworld.units.durations import parse_duration
from reprieve.api.crds import kueue_crds, load
from reprieve.engine.quota.assigning.assignment import NoFitReason
from reprieve.engine.quota.entries import Unready
from reprieve.engine.quota.model import Reason, Strategy
from reprieve.intake.quota_workloads import LACKS_PODS
from reprieve.jobs.table import BUILT_IN, job_kinds
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from reprieve.scenarios.steps import PreemptionReason
from reprieve.settings.quota import (
    PREEMPT_MIN_RUNTIME,
    RECLAIM_MIN_RUNTIME,
    QuotaSettings,
    min_runtimes,
    quota_settings,
    read_quota,
)
from reprieve.settings.quota_configuration import NEW, OLD, quota_configuration
from reprieve.settings.quota_gates import DECIDING, DEFAULTS, PLACING
from reprieve.units.errors import UsageError
from tests.docs.tables import table, topic

TEXT = topic("quota")
SOURCES = Path(__file__).parents[2] / "src" / "reprieve"
# Of keys that stand for what is below them.
BELOW = {"fairSharing", "waitForPodsReady", "integrations", "resources", "metrics", "webhook"}


def rows(heading: str) -> list[list[str]]:
    return table(TEXT, heading)


def blocks() -> list[Any]:
    """Return the documents of all YAML blocks."""
    found = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    return [document for block in found for document in yaml.safe_load_all(block)]


def sections() -> list[Mapping[str, Any]]:
    """Return what the blocks say under `quota`."""
    return [block["quota"] for block in blocks() if "quota" in block]


def accepted(where: str, section: Mapping[str, Any]) -> set[str]:
    """Return the keys that a refusal names as accepted."""
    with pytest.raises(UsageError) as refused:
        quota_settings(section)
    assert where in str(refused.value)
    return set(re.split(r", ", str(refused.value).partition("accepted: ")[2]))


def test_every_option_is_described_with_its_default_and_has_an_example() -> None:
    table = {row[0]: row[1] for row in rows("option `quota.`")}
    assert set(table) == accepted("nothing", {"nothing": 1})
    default = QuotaSettings()
    assert table["preemptionPolicy"] == "Classical"
    assert default.configuration.settings.fair_sharing is None
    assert table["profile"] == str(default.configuration.settings.profile)
    assert table["proveNodes"] == str(default.prove_nodes).lower()
    assert table["idleFirst"] == str(default.configuration.settings.idle_first).lower()
    assert table["harmOrder"] == str(default.configuration.settings.harm_order).lower()
    assert table["loopLimit"] == str(default.loop_limit)
    assert parse_duration(table["loopWindow"]) == default.loop_window
    assert parse_duration(table["preemptionDelay"]) == default.delay
    assert {key for section in sections() for key in section} == set(table)


def test_every_option_of_webhooks_is_described_with_its_default_and_has_an_example() -> None:
    table = {row[0]: row[1] for row in rows("option `quota.webhooks.`")}
    assert set(table) == accepted("webhooks", {"webhooks": {"nothing": 1}})
    default = QuotaSettings()
    assert table["jobFailurePolicy"] == default.job_failure_policy
    assert table["port"] == str(default.webhook_port)
    assert {key for s in sections() for key in s.get("webhooks", ())} == set(table)


@pytest.mark.parametrize("section", sections(), ids=lambda section: " ".join(section))
def test_an_example_is_accepted_and_changes_something(section: Mapping[str, Any]) -> None:
    text = yaml.safe_dump({"quota": section})
    settings = quota_settings(read_quota(text, "docs/quota.md"))
    assert settings != quota_settings()
    assert settings.notices == ()
    assert len(job_kinds(settings.job_kinds)) == len(BUILT_IN) + len(section.get("jobKinds", ()))


def leaves(given: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths and values of a Configuration's keys."""
    for key, value in given.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and here in {*BELOW, *_SECTIONS}:
            yield from leaves(value, here)
        else:
            yield here, value


_SECTIONS = {
    "waitForPodsReady.requeuingStrategy",
    "admissionFairSharing",
    "objectRetentionPolicies",
    "objectRetentionPolicies.workloads",
    "metrics.localQueueMetrics",
    "internalCertManagement",
}


def known(version: str, path: str) -> bool:
    """Tell whether a version of the Configuration has a key."""
    document: Any = None
    for part in reversed(path.split(".")):
        document = {part: document}
    try:
        quota_configuration({"apiVersion": version, "kind": "Configuration", **document})
    except UsageError as error:
        return f'unknown field "{path}"' not in str(error)
    return True


def test_every_key_of_the_configuration_is_described_for_both_versions() -> None:
    described = {}
    for keys, *versions, _ in rows("key of the Configuration"):
        for key in keys.split(", "):
            described[key] = versions
            for version, cell in zip((OLD, NEW), versions, strict=True):
                assert known(version, key) is (cell != "-"), (key, version)
    shown = {
        key
        for section in sections()
        if "apiVersion" in section.get("configuration", {})
        for key, _ in leaves(section["configuration"])
        if key not in HEAD
    }
    read = {key for key, cells in described.items() if "not read" not in cells}
    assert shown >= read - {"webhook.certDir"}
    for version in (OLD, NEW):
        with pytest.raises(UsageError, match="unknown field"):
            quota_configuration({"apiVersion": version, "kind": "Configuration", "nothing": 1})
        for key in top_level(version):
            assert key in described or any(each.startswith(f"{key}.") for each in described), key


HEAD = ("apiVersion", "kind")


def top_level(version: str) -> set[str]:
    """Return the keys that a version has, out of all that the sources name."""
    source = (SOURCES / "settings" / "quota_configuration.py").read_text(encoding="utf-8")
    words = set(re.findall(r'^    "([a-z]\w+)"', source, re.MULTILINE))
    return {word for word in words if known(version, word)} - set(HEAD)


def test_defaults_of_the_configuration_are_those_of_the_table() -> None:
    table = {row[0]: row[1:3] for row in rows("key of the Configuration")}
    for column, version in enumerate((OLD, NEW)):
        waiting = {"enable": True} if version == OLD else {}
        found = quota_configuration(
            {"apiVersion": version, "kind": "Configuration", "waitForPodsReady": waiting}
        )
        ready = found.pods_ready
        assert ready is not None
        said = {key: cells[column] for key, cells in table.items()}
        assert parse_duration(said["waitForPodsReady.timeout"]) == ready.timeout_s * 10**9
        assert ready.recovery_s == ready.timeout_s
        assert said["waitForPodsReady.blockAdmission"] == str(ready.block_admission).lower()
        strategy = "waitForPodsReady.requeuingStrategy."
        assert said[f"{strategy}backoffBaseSeconds"] == str(ready.backoff.base_s)
        assert said[f"{strategy}backoffMaxSeconds"] == str(ready.backoff.max_s)
        assert ready.backoff.limit is None and ready.eviction_timestamp
        assert said["integrations.frameworks"] == f"[{', '.join(found.frameworks)}]"
        without = found.manage_jobs_without_queue_name
        assert said["manageJobsWithoutQueueName"] == str(without).lower()
        amounts, local = found.queue_metrics, found.local_queue_metrics
        assert said["metrics.enableClusterQueueResources"] == str(amounts).lower()
        assert said["metrics.localQueueMetrics.enable"] == str(local).lower()
        assert said["webhook.port"] == str(found.webhook_port)
        assert said["internalCertManagement.enable"] == str(found.own_certificates).lower()
        assert (found.after_finished_s, found.after_deactivated_s) == (None, None)


def test_every_gate_is_described_with_its_default_and_whether_it_does_anything() -> None:
    table = {row[0]: row[1:] for row in rows("gate")}
    assert {name: said[0] for name, said in table.items()} == {
        name: "on" if on else "off" for name, on in DEFAULTS.items()
    }
    sources = "".join(
        file.read_text(encoding="utf-8")
        for file in SOURCES.rglob("*.py")
        if file.name != "quota_gates.py"
    )
    unused = {
        name
        for name in DEFAULTS
        if name not in {**DECIDING, **PLACING} and f'"{name}"' not in sources
    }
    assert {name for name, said in table.items() if said[1] == "as by default"} == unused


def schema(name: str, *path: str) -> Any:
    """Return the schema of a field in the stored version."""
    versions = load(name)["spec"]["versions"]
    (stored,) = (version for version in versions if version["storage"])
    found = stored["schema"]["openAPIV3Schema"]
    for part in path:
        found = found["properties"][part]
    return found


def test_every_setting_of_preemption_is_described_with_its_values() -> None:
    preemption = schema("clusterqueues.kueue.x-k8s.io", "spec", "preemption")
    described = {row[0]: row[1].split(", ") for row in rows("field of `spec.preemption`")}
    fields = {**preemption["properties"]}
    below = fields.pop("borrowWithinCohort")["properties"]
    fields |= {f"borrowWithinCohort.{key}": value for key, value in below.items()}
    assert set(described) == set(fields)
    for name, values in described.items():
        if "enum" in fields[name]:
            assert sorted(values) == sorted(fields[name]["enum"]), name
            assert values[0] == fields[name]["default"], name


def test_the_reasons_and_strategies_are_all_there() -> None:
    assert [row[0] for row in rows("reason in `Preempted`")] == [
        Reason.IN_CLUSTER_QUEUE,
        Reason.IN_COHORT_RECLAMATION,
        Reason.IN_COHORT_RECLAIM_WHILE_BORROWING,
        Reason.IN_COHORT_FAIR_SHARING,
    ]
    assert {row[0] for row in rows("strategy")} == {str(each) for each in Strategy}
    waiting = {word for row in rows("reason") for word in row[0].split(", ")}
    beside = {"Suspended", "OnHold", "Deactivated", "Inadmissible", LACKS_PODS}
    assert waiting == {*beside, *(str(each) for each in (*Unready, *NoFitReason) if each)}
    sources = "".join(file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py"))
    assert [word for word in beside if f'"{word}"' not in sources] == []
    assert set(get_args(PreemptionReason)) == {str(each) for each in Reason}


async def test_the_objects_of_the_examples_are_taken_by_the_api(tmp_path: Path) -> None:
    objects = [block for block in blocks() if "metadata" in block]
    plurals = {"batch/v1": ("batch", "v1", "jobs", "Job")}
    async with EmbeddedCluster() as cluster:
        cluster.write_kubeconfig(tmp_path / "config")
        connection = await load_connection(str(tmp_path / "config"))
        client = connect(connection, SystemClock())
        try:
            for crd in kueue_crds():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
                names, group = crd["spec"]["names"], crd["spec"]["group"]
                plurals[names["kind"]] = (group, "v1beta2", names["plural"], names["kind"])
            for each in objects:
                namespaced = "namespace" in each["metadata"]
                row = plurals.get(each["kind"]) or plurals[each["apiVersion"]]
                stored = await client.create(Resource(*row, namespaced), each, dict)
                assert contains(stored, each), each["metadata"]["name"]
        finally:
            await client.close()
    kinds = {each["kind"] for each in objects}
    assert kinds >= {"ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue", "AdmissionCheck"}


def contains(whole: Any, part: Any) -> bool:
    """Tell whether nothing of `part` was dropped; amounts may be written otherwise."""
    if isinstance(part, Mapping):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return str(whole) == str(part)


def test_the_annotations_of_the_example_protect() -> None:
    (queue,) = (each for each in blocks() if (each.get("metadata") or {}).get("annotations"))
    annotations = queue["metadata"]["annotations"]
    assert set(annotations) == {PREEMPT_MIN_RUNTIME, RECLAIM_MIN_RUNTIME}
    found = min_runtimes(annotations)
    assert (found.preempt_s, found.reclaim_s, found.problems) == (600, 3600, ())
