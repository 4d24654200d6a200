"""CustomResourceDefinitions: what one defines, and whether it may.

`complete` fills in what users leave out, `problems` states what is wrong with one in the real
server's words, `kinds_of` makes the kinds to serve. Schemas must be structural: every field has a
type, and nothing is stated about a field only inside `allOf` and the like. Source: the API's rules
for CustomResourceDefinitions; answers of a 1.37 server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause, Invalid
from kubelocal.server.types.cel import Rules
from kubelocal.server.types.custom_versions import Column, CustomVersion
from kubelocal.server.types.jsonpath import InvalidPath, find
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.schema_checks import check_schema
from kubelocal.server.types.structural import Validator
from kubelocal.server.validation.webhooks import client_config
from kubelocal.server.wire.deprecations import custom_deprecation, deprecation_problems

__all__ = ["complete", "kinds_of", "problems", "update_problems"]


_AGE: Final = Column(
    "Age",
    "date",
    "",
    "Time since the object was created.",
    0,
    ".metadata.creationTimestamp",
)


def complete(crd: dict[str, Any]) -> None:
    """Fill in the names, the conversion strategy and, where empty, the stored versions."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("listKind", f"{names['kind']}List")
        names.setdefault("singular", names["kind"].lower())
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    conversion.setdefault("strategy", "None")
    status = crd.setdefault("status", {})
    if not status.get("storedVersions"):
        status["storedVersions"] = [
            version["name"]
            for version in spec.get("versions") or ()
            if isinstance(version, dict) and version.get("storage") and version.get("name")
        ][:1]


def kinds_of(crd: Mapping[str, Any]) -> list[Kind]:
    """Return the kind of each served version.

    Raises:
        Invalid: the definition is not acceptable.
    """
    found = problems(crd)
    if found:
        raise Invalid(found)
    return list(_kinds(_decisive(crd)))


def _decisive(crd: Mapping[str, Any]) -> str:
    """Return what of a definition decides whether and how it is served, as JSON.

    A definition is judged three times when it is created, and compiling its schema and rules is
    most of what a server does at its start: answers are kept by this text.
    """
    metadata, status = crd.get("metadata") or {}, crd.get("status") or {}
    return json.dumps(
        {
            "metadata": {"name": metadata.get("name")},
            "spec": crd.get("spec"),
            "status": {"storedVersions": status.get("storedVersions")},
        }
    )


@lru_cache(maxsize=128)
def _kinds(text: str) -> tuple[Kind, ...]:
    crd = json.loads(text)
    spec = crd["spec"]
    names = spec["names"]
    kinds = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        custom = _custom_version(str(crd["metadata"]["name"]), spec, version)
        subresources = {"status"} if custom.status else set()
        if custom.scale is not None:
            subresources.add("scale")
        kinds.append(
            Kind(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                singular=names.get("singular") or names["kind"].lower(),
                namespaced=spec["scope"] == "Namespaced",
                list_kind=names.get("listKind") or f"{names['kind']}List",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=frozenset(subresources),
                custom=custom,
                stored=bool(version.get("storage")),
            )
        )
    return tuple(kinds)


def _custom_version(
    name: str, spec: Mapping[str, Any], version: Mapping[str, Any]
) -> CustomVersion:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    columns = tuple(
        Column(
            name=column["name"],
            type=column["type"],
            format=column.get("format") or "",
            description=column.get("description") or "",
            priority=column.get("priority") or 0,
            json_path=column["jsonPath"],
        )
        for column in version.get("additionalPrinterColumns") or ()
    )
    return CustomVersion(
        crd=name,
        schema=schema,
        validator=Validator(schema),
        rules=Rules.of(schema),
        columns=columns or (_AGE,),
        status="status" in subresources,
        scale=None
        if scale is None
        else (
            scale["specReplicasPath"],
            scale["statusReplicasPath"],
            scale.get("labelSelectorPath") or "",
        ),
        selectable=tuple(
            field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
        ),
        deprecation=custom_deprecation(spec, version),
        conversion=(spec.get("conversion") or {}).get("webhook"),
    )


def problems(crd: Mapping[str, Any]) -> list[Cause]:
    """Return everything that keeps `crd` from being served."""
    return list(_problems(_decisive(crd)))


@lru_cache(maxsize=128)
def _problems(text: str) -> tuple[Cause, ...]:
    crd = json.loads(text)
    spec = crd.get("spec") or {}
    found = list(_naming(crd, spec))
    versions = spec.get("versions") or []
    if not versions:
        found.append(causes.bad("spec.versions", [], "must have at least one version"))
    storage = [version.get("name", "") for version in versions if version.get("storage")]
    names = [version.get("name", "") for version in versions]
    found += [
        causes.duplicate(f"spec.versions[{index}].name", name)
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    for index, version in enumerate(versions):
        if not _LABEL.fullmatch(version.get("name") or ""):
            found.append(
                causes.bad(
                    f"spec.versions[{index}].name",
                    version.get("name") or "",
                    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
                    "start with an alphabetic character, and end with an alphanumeric character "
                    "(e.g. 'my-name',  or 'abc-123', regex used for validation is "
                    "'[a-z]([-a-z0-9]*[a-z0-9])?')",
                )
            )
        found += _version(version, index, alone=len(versions) == 1)
    if versions and len(storage) != 1:
        found.append(
            causes.bad(
                "spec.versions",
                [_internal(version) for version in versions],
                "must have exactly one version marked as storage version",
            )
        )
    kept = (crd.get("status") or {}).get("storedVersions") or []
    missing = [name for name in storage if name not in kept]
    if kept and missing:
        found.append(
            causes.bad(
                "status.storedVersions", kept, f"must have the storage version {missing[-1]}"
            )
        )
    return tuple(found)


_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)


def _naming(crd: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Cause]:
    names = spec.get("names") or {}
    group, plural = spec.get("group") or "", names.get("plural") or ""
    name = (crd.get("metadata") or {}).get("name") or ""
    if name != f"{plural}.{group}":
        yield causes.bad("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield causes.required("spec.group")
    elif "." not in group:
        yield causes.bad("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope") or ""
    if not scope:
        yield causes.required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield causes.unsupported("spec.scope", scope, ("Cluster", "Namespaced"))
    for word in ("plural", "singular", "kind", "listKind"):
        if not names.get(word):
            yield causes.required(f"spec.names.{word}")
    for word in ("kind", "listKind"):
        given = names.get(word)
        if given and not _LABEL.fullmatch(str(given).lower()):
            yield causes.bad(
                f"spec.names.{word}",
                given,
                "may have mixed case, but should otherwise match: a DNS-1035 label must consist "
                "of lower case alphanumeric characters or '-', start with an alphabetic "
                "character, and end with an alphanumeric character (e.g. 'my-name',  or "
                "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            )
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield causes.bad(
            "spec.names.listKind", names["listKind"], "kind and listKind may not be the same"
        )
    strategy = (spec.get("conversion") or {}).get("strategy", "None")
    if strategy not in ("None", "Webhook"):
        yield causes.unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    webhook = (spec.get("conversion") or {}).get("webhook") or {}
    reviews = webhook.get("conversionReviewVersions") or []
    if strategy == "Webhook" and not webhook.get("clientConfig"):
        yield causes.required(
            "spec.conversion.webhook.clientConfig", "required when strategy is set to Webhook"
        )
    elif strategy == "Webhook":
        yield from client_config(webhook["clientConfig"], "spec.conversion.webhook.clientConfig")
    if strategy == "Webhook" and webhook and "v1" not in reviews:
        yield causes.bad(
            "spec.conversion.webhook.conversionReviewVersions", reviews, "must include v1"
        )
    if spec.get("preserveUnknownFields"):
        yield causes.bad(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead",
        )


def update_problems(crd: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield what `crd` changes in `old` that may not change while objects may exist."""
    spec, former = crd.get("spec") or {}, old.get("spec") or {}
    names, were = spec.get("names") or {}, former.get("names") or {}
    for field, value, was in (
        ("spec.group", spec.get("group"), former.get("group")),
        ("spec.scope", spec.get("scope"), former.get("scope")),
        ("spec.names.kind", names.get("kind"), were.get("kind")),
        ("spec.names.plural", names.get("plural"), were.get("plural")),
    ):
        if value != was:
            yield causes.bad(field, value, "field is immutable")
    known = [version.get("name") for version in spec.get("versions") or ()]
    for index, name in enumerate((crd.get("status") or {}).get("storedVersions") or ()):
        if name not in known:
            yield causes.bad(
                f"status.storedVersions[{index}]", name, "must appear in spec.versions"
            )


def _internal(version: Mapping[str, Any]) -> dict[str, Any]:
    """Return a version as the server's own types print it."""
    return {
        "Name": version.get("name", ""),
        "Served": bool(version.get("served")),
        "Storage": bool(version.get("storage")),
        "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": None,
        "Subresources": None,
        "AdditionalPrinterColumns": None,
        "SelectableFields": None,
    }


_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")


def _version(version: Mapping[str, Any], index: int, *, alone: bool) -> Iterator[Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    outer = f"spec.versions[{index}]"
    yield from deprecation_problems(version, outer)
    if schema is None:
        yield causes.required(f"{outer}.schema.openAPIV3Schema")
    else:
        # A schema that all versions share stands elsewhere in the server's own types.
        at = "spec.validation.openAPIV3Schema" if alone else f"{outer}.schema.openAPIV3Schema"
        if schema.get("type") != "object":
            yield (
                causes.bad(f"{at}.type", schema.get("type") or "", "must be object at the root")
                if schema.get("type")
                else causes.required(f"{at}.type", "must not be empty at the root")
            )
        yield from check_schema(schema, at)
    inner = "spec" if alone else outer
    for place, column in enumerate(version.get("additionalPrinterColumns") or ()):
        at = f"{inner}.additionalPrinterColumns[{place}]"
        for word in ("name", "type", "jsonPath"):
            if not column.get(word):
                yield causes.required(f"{at}.{word}")
        if column.get("jsonPath") and _is_bad_path(column["jsonPath"]):
            yield causes.bad(f"{at}.jsonPath", column["jsonPath"], "is an invalid path")
        if column.get("type") and column["type"] not in _COLUMN_TYPES:
            yield causes.unsupported(f"{at}.type", column["type"], _COLUMN_TYPES)
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        for word, section in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
            path = scale.get(word) or ""
            if not path.startswith(section):
                at = f"{inner}.subresources.scale.{word}"
                yield (
                    causes.bad(at, path, f"should be a json path under {section.rstrip('.')}")
                    if path
                    else causes.required(at)
                )


def _is_bad_path(path: str) -> bool:
    try:
        find(path, {})
    except InvalidPath:
        return True
    return False
