"""Protobuf bodies decode to the objects that were encoded, and bad ones to one error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubelocal.server.wire.protobuf import UnsupportedProtobuf, decode
from kubelocal.tests.kinds.objects import Object, container, deployment, job, kind_of, pod
from kubelocal.tests.kinds.wire import envelope

_PROBE = {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 5}
_RICH = pod(
    containers=[
        container(
            resources={"limits": {"cpu": "2", "amd.com/gpu": "4"}},
            livenessProbe=_PROBE,
            env=[{"name": "A", "value": "b"}],
        )
    ],
    terminationGracePeriodSeconds=0,
    nodeSelector={"a": "b", "c": "d"},
    tolerations=[{"key": "k", "operator": "Exists", "tolerationSeconds": -1}],
    volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}],
)


@pytest.mark.parametrize("obj", [_RICH, job(suspend=False, parallelism=3), deployment(replicas=0)])
def test_an_encoded_object_comes_back(obj: Object) -> None:
    assert decode(envelope(kind_of(obj).layout, obj)) == obj


def test_numbers_or_texts_times_and_bytes_come_back() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "data": {"key": "dmFsdWU="},
        "immutable": True,
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": "50%", "maxUnavailable": 1},
    }
    assert decode(envelope("core/v1.Secret", secret)) == secret
    assert decode(envelope("policy/v1.PodDisruptionBudget", budget)) == budget


def test_delete_options_are_of_every_group() -> None:
    options = {"apiVersion": "policy/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    assert decode(envelope("meta/v1.DeleteOptions", options)) == options


def test_a_kind_without_a_layout_is_named() -> None:
    unknown = {"apiVersion": "example.org/v1", "kind": "Task"}
    with pytest.raises(UnsupportedProtobuf, match=r'"Task" in version "example\.org/v1"'):
        decode(envelope("meta/v1.DeleteOptions", unknown))


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s", b"k8s\x00\xff", b"k8s\x00\x0a\x05ab"])
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(UnsupportedProtobuf):
        decode(body)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bodies_fail_in_one_way(data: st.DataObject) -> None:
    body = bytearray(envelope("core/v1.Pod", _RICH))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(body)))
    with contextlib.suppress(UnsupportedProtobuf):
        assert isinstance(decode(bytes(body[:cut])), dict)
