"""Small objects for the tests of kinds, and the calls that admit them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.registry import Registry
from kubelocal.server.types.schema import (
    Admitted,
    FieldValidation,
    Invalid,
    StrictDecoding,
    decode,
    update_problems,
    validate,
)

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
Object = dict[str, Any]

TASK = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tasks.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: tasks, kind: Task, shortNames: [tk], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas, priority: 1}
    - {name: Idle Since, type: date, jsonPath: .status.idleSince}
    - name: Ready
      type: string
      jsonPath: '.status.conditions[?(@.type=="Ready")].status'
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [image]
            x-kubernetes-validations:
            - {rule: self.least <= self.replicas, message: least must not exceed replicas}
            properties:
              image: {type: string, minLength: 1, maxLength: 10}
              mode: {type: string, enum: [Batch, Serve], default: Batch}
              replicas: {type: integer, minimum: 1, maximum: 9, default: 1}
              least: {type: integer, default: 0}
              queue:
                type: string
                default: main
                x-kubernetes-validations:
                - {rule: self == oldSelf, message: queue is immutable}
              name: {type: string, pattern: "^[a-z]+$"}
              size: {x-kubernetes-int-or-string: true}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              labels: {type: object, additionalProperties: {type: string}}
              tags: {type: array, maxItems: 3, x-kubernetes-list-type: set, items: {type: string}}
              steps:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    command: {type: string, default: "true"}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def admit(kind: Kind, obj: Object, validation: FieldValidation) -> Admitted:
    """Decode and validate `obj`; `obj` itself is left as it is."""
    admitted = decode(kind, obj, validation)
    validate(kind, admitted.obj)
    return admitted


def admit_update(kind: Kind, obj: Object, old: Object) -> None:
    """Raise Invalid where `obj` changes what may not change in `old`."""
    found = update_problems(kind, obj, old)
    if found:
        raise Invalid(found)


def kind_of(obj: Object, registry: Registry | None = None) -> Kind:
    kind = (registry or Registry()).by_kind(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return kind


def stored(
    obj: Object,
    registry: Registry | None = None,
    validation: FieldValidation = FieldValidation.STRICT,
) -> Object:
    """Return `obj` as the server would store it."""
    return admit(kind_of(obj, registry), obj, validation).obj


def refusal(obj: Object, registry: Registry | None = None) -> list[str]:
    """Return what is wrong with `obj`, as `field: text`."""
    with pytest.raises(Invalid) as refused:
        stored(obj, registry)
    return [f"{cause.field}: {cause.message}" for cause in refused.value.causes]


def undecodable(obj: Object, registry: Registry | None = None) -> str:
    """Return why `obj` does not decode."""
    with pytest.raises(StrictDecoding) as refused:
        stored(obj, registry)
    return refused.value.message


def update_refusal(new: Object, old: Object, registry: Registry | None = None) -> list[str]:
    """Return what `new` may not change in `old`."""
    with pytest.raises(Invalid) as refused:
        admit_update(kind_of(new, registry), stored(new, registry), stored(old, registry))
    return [f"{cause.field}: {cause.message}" for cause in refused.value.causes]


def pod(**spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [container()], **spec},
    }


def container(**fields: Any) -> Object:
    return {"name": "main", "image": "example.org/a:1", **fields}


def job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def deployment(**spec: Any) -> Object:
    labels = {"app": "d"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}},
            **spec,
        },
    }


def definition() -> Object:
    """Return the definition of Task."""
    found: Object = yaml.safe_load(TASK)
    return found


def schema_of(crd: Object) -> Object:
    """Return the schema of the first version, to change it."""
    found: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def with_tasks(crd: Object | None = None) -> Registry:
    registry = Registry()
    registry.install(stored(crd or definition()))
    return registry


def task(status: Object | None = None, **spec: Any) -> Object:
    obj: Object = {
        "apiVersion": "example.org/v1",
        "kind": "Task",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"image": "a", **copy.deepcopy(spec)},
    }
    if status is not None:
        obj["status"] = status
    return obj
