"""What pods of a SparkApplication request is what Spark requests for them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeworld.kinds.families import FAMILIES, Pods
from kubeworld.kinds.spark import spark_requests

OFF_HEAP = {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "4g"}


@pytest.mark.parametrize(
    ("role", "spec", "cpu", "memory"),
    [
        ("driver", {}, "1", "1408Mi"),
        ("driver", {"driver": {"memory": "512m", "cores": 1}}, "1", "896Mi"),
        ("driver", {"driver": {"memory": "8g", "cores": 4}}, "4", "9011Mi"),
        ("driver", {"driver": {"memory": "8g"}, "type": "Python"}, "1", "11468Mi"),
        ("driver", {"driver": {"cores": 4, "coreRequest": "250m"}}, "250m", "1408Mi"),
        ("driver", {"driver": {"memory": "4g", "memoryOverhead": "1g"}}, "1", "5120Mi"),
        ("driver", {"driver": {"memory": "4096", "memoryOverhead": "1024kb"}}, "1", "4097Mi"),
        ("driver", {"driver": {"memory": "4g"}, "memoryOverheadFactor": "0.25"}, "1", "5120Mi"),
        (
            "executor",
            {
                "executor": {"memory": "4g"},
                "memoryOverheadFactor": "0.25",
                "sparkConf": {"spark.executor.memoryOverheadFactor": "0.5"},
            },
            "1",
            "6144Mi",
        ),
        ("executor", {"executor": {"memory": "4g"}, "sparkConf": OFF_HEAP}, "1", "8601Mi"),
        ("driver", {"driver": {"memory": "4g"}, "sparkConf": OFF_HEAP}, "1", "4505Mi"),
        (
            "executor",
            {"type": "Python", "sparkConf": {"spark.executor.pyspark.memory": "2g"}},
            "1",
            "3481Mi",
        ),
        (
            "executor",
            {"sparkConf": {"spark.executor.cores": "3", "spark.executor.memory": "2g"}},
            "3",
            "2432Mi",
        ),
        (
            "executor",
            {"executor": {"cores": 2}, "sparkConf": {"spark.executor.cores": "3"}},
            "2",
            "1408Mi",
        ),
        ("driver", {"driver": {"memory": "much"}}, "1", "much"),
        ("driver", {"driver": {"memoryOverhead": "1z"}}, "1", "1z"),
        ("driver", {"memoryOverheadFactor": "-1"}, "1", "-1"),
    ],
)
def test_cores_and_memory_beside_the_heap_count(
    role: str, spec: dict[str, Any], cpu: str, memory: str
) -> None:
    assert spark_requests(role, spec) == {"cpu": cpu, "memory": memory}


def test_the_pods_that_are_made_request_it() -> None:
    spec = {"driver": {"cores": 2}, "executor": {"instances": 2, "memory": "2g"}}
    made = FAMILIES["sparkapplications.sparkoperator.k8s.io"].make("app", spec)
    asked = [
        each.template["spec"]["containers"][0]["resources"]["requests"]
        for each in made
        if isinstance(each, Pods)
    ]
    assert asked == [{"cpu": "2", "memory": "1408Mi"}, {"cpu": "1", "memory": "2432Mi"}]
