"""Pods are known for their controller's by the names that controllers give."""

from __future__ import annotations

from random import Random

import pytest

from reprieve.answers.preemptions.displacements import made_by

_SAFE = "bcdfghjklmnpqrstvwxz2456789"


def test_pods_of_a_deployment_are_known_whatever_letters_its_hash_has() -> None:
    random = Random(5)
    for _ in range(500):
        template = "".join(random.choices(_SAFE, k=random.randint(6, 10)))
        ending = "".join(random.choices(_SAFE, k=5))
        assert made_by("web", f"web-{template}-{ending}"), template


@pytest.mark.parametrize(
    "pod", ["train-0", "train-x2lkp", "train-28391020-x2lkp", "train-5d4f8c9b7d-x2lkp"]
)
def test_names_of_jobs_sets_and_deployments_are_known(pod: str) -> None:
    assert made_by("train", pod)


@pytest.mark.parametrize("pod", ["train", "train-other", "trainer-0", "train-a-very-long-name"])
def test_names_of_others_are_not(pod: str) -> None:
    assert not made_by("train", pod)
