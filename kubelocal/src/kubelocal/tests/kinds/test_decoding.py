"""Objects of built-in kinds are read by their layouts, with the real server's complaints."""

from __future__ import annotations

from typing import Any

import pytest

from kubelocal.server.types.decoding import decode
from kubelocal.server.types.schema import FieldValidation
from kubelocal.tests.kinds.objects import admit, container, job, kind_of, pod, stored, undecodable
from kubeworld.units.canonical import NotAQuantity, canonical


def test_unknown_fields_are_named_with_their_paths() -> None:
    wrong = pod(nosuch=1, containers=[container(imagee="x", resources={"request": {}})])
    assert undecodable(wrong) == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].imagee", '
        'unknown field "spec.containers[0].resources.request", unknown field "spec.nosuch"'
    )


def test_unknown_fields_are_dropped_with_a_warning_or_silently() -> None:
    wrong = pod(nosuch=1)
    warned = admit(kind_of(wrong), wrong, FieldValidation.WARN)
    ignored = admit(kind_of(wrong), wrong, FieldValidation.IGNORE)
    assert warned.warnings == ['unknown field "spec.nosuch"']
    assert ignored.warnings == []
    assert warned.obj == ignored.obj == stored(pod())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            pod(terminationGracePeriodSeconds="30"),
            (
                "cannot unmarshal string into Go struct field "
                "PodSpec.spec.terminationGracePeriodSeconds of type int64"
            ),
        ),
        (
            pod(containers={}),
            (
                "cannot unmarshal object into Go struct field PodSpec.spec.containers "
                "of type []v1.Container"
            ),
        ),
        (
            pod(containers=[container(image=True)]),
            (
                "cannot unmarshal bool into Go struct field Container.spec.containers.image "
                "of type string"
            ),
        ),
        (
            pod(nodeSelector={"a": 1}),
            "cannot unmarshal number into Go struct field PodSpec.spec.nodeSelector of type string",
        ),
        (
            pod(terminationGracePeriodSeconds=1.5),
            (
                "cannot unmarshal number 1.5 into Go struct field "
                "PodSpec.spec.terminationGracePeriodSeconds of type int64"
            ),
        ),
        (
            pod(securityContext="x"),
            (
                "cannot unmarshal string into Go struct field PodSpec.spec.securityContext "
                "of type v1.PodSecurityContext"
            ),
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_named_by_the_decoder(wrong: Any, text: str) -> None:
    assert undecodable(wrong) == f'Pod in version "v1" cannot be handled as a Pod: json: {text}'


def test_a_wrong_type_is_told_before_unknown_fields() -> None:
    assert "Go struct field" in undecodable(pod(nosuch=1, nodeName=5))


def test_what_is_not_a_quantity_is_refused() -> None:
    wrong = pod(containers=[container(resources={"limits": {"cpu": "lots"}})])
    assert undecodable(wrong).endswith("'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")


def test_spelling_out_zeros_changes_nothing() -> None:
    spelled = pod(nodeName="", hostNetwork=False, volumes=[], nodeSelector={}, affinity=None)
    assert stored(spelled) == stored(pod())


def test_a_zero_that_differs_from_absence_stays() -> None:
    decoded = decode("batch/v1.Job", job(suspend=False, ttlSecondsAfterFinished=0)).object
    assert decoded["spec"]["suspend"] is False
    assert decoded["spec"]["ttlSecondsAfterFinished"] == 0


def test_fields_of_inlined_messages_stand_beside_the_others() -> None:
    probe = {"httpGet": {"port": 80}, "periodSeconds": 5}
    decoded = decode("core/v1.Pod", pod(containers=[container(livenessProbe=probe)]))
    assert decoded.unknown == []
    assert decoded.object["spec"]["containers"][0]["livenessProbe"] == probe


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5Gi", "512Mi"),
        ("0.5Mi", "512Ki"),
        ("0.5Ki", "512"),
        ("2000", "2k"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("0", "0"),
        ("-1", "-1"),
        ("-0", "0"),
        ("+4", "4"),
        ("0.0000000001", "1n"),
        ("128974848", "128974848"),
    ],
)
def test_quantities_are_kept_in_one_spelling(written: str, kept: str) -> None:
    assert canonical(written) == kept
    assert canonical(kept) == kept


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1Q", "1.2.3", "0x10"])
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(NotAQuantity):
        canonical(text)
