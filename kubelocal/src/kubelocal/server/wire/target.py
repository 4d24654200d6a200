"""What a request is about: kind, namespace, name and subresource from the path, and the verb.

Paths: `/api/v1/..` and `/apis/GROUP/VERSION/..` as the API conventions give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from kubelocal.server.errors import bad_request, method_not_allowed, path_not_found
from kubelocal.server.rights.identity import Attributes
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.registry import Registry

__all__ = ["Target", "Unserved", "segments_of", "target_of", "verb_of"]

_VERBS: Final = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Target:
    """`namespace` is None for all namespaces, "" for cluster-scoped kinds; `name` may be empty."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str
    legacy_watch: bool = False

    def attributes(self, verb: str, field_selector: str = "") -> Attributes:
        """Return what rules are checked for; a list or watch of one name is about that name."""
        named = _named(self.name, verb, field_selector)
        resource = _with_subresource(self.kind.plural, self.subresource)
        return Attributes(verb, self.kind.group, resource, self.namespace or "", named)


@dataclass(frozen=True, slots=True)
class Unserved:
    """A path of a kind that is not served; rights are checked before."""

    group: str
    plural: str
    namespace: str | None
    name: str
    subresource: str
    legacy_watch: bool = False

    def attributes(self, verb: str, field_selector: str = "") -> Attributes:
        """Return what rules are checked for, as those of a `Target`."""
        named = _named(self.name, verb, field_selector)
        resource = _with_subresource(self.plural, self.subresource)
        return Attributes(verb, self.group, resource, self.namespace or "", named)


def segments_of(raw_path: str) -> list[str]:
    """Return the decoded parts of a path.

    Raises:
        StatusError: 400, a part that would lead elsewhere.
    """
    segments = raw_path.strip("/").split("/")
    if "%" in raw_path:
        try:
            segments = [unquote(part, errors="strict") for part in segments]
        except UnicodeDecodeError:
            raise bad_request("the path is not UTF-8") from None
    for part in segments:
        if part in (".", "..") or "/" in part or "\\" in part or "\0" in part:
            raise bad_request(f"the path has a part that names nothing: {part!r}")
    return segments


def target_of(registry: Registry, segments: list[str]) -> Target | Unserved:
    """Return what the path names; `Unserved` where this server has no such kind.

    Raises:
        StatusError: 404, a path that cannot name anything.
    """
    if segments[0] == "api":
        group, version, rest = "", segments[1], segments[2:]
    else:
        group, version, rest = segments[1], segments[2], segments[3:]
    legacy_watch = rest[:1] == ["watch"]
    if legacy_watch:
        rest = rest[1:]
    namespace: str | None = None
    if rest[:1] == ["namespaces"] and len(rest) > 2 and not _is_namespace_part(group, rest):
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3 or "" in rest:
        raise path_not_found()
    kind = registry.find(group, version, rest[0])
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if kind is None:
        return Unserved(group, rest[0], namespace, name, subresource, legacy_watch)
    if not kind.namespaced:
        if namespace is not None:
            raise path_not_found()
        namespace = ""
    elif name and namespace is None:
        raise path_not_found()
    return Target(kind, namespace, name, subresource, legacy_watch)


def _with_subresource(plural: str, subresource: str) -> str:
    return f"{plural}/{subresource}" if subresource else plural


def _named(name: str, verb: str, field_selector: str) -> str:
    if name or verb not in ("list", "watch", "deletecollection"):
        return name
    terms = [term.partition("=") for term in field_selector.split(",")]
    return next((v.lstrip("=") for path, _, v in terms if path == "metadata.name"), "")


def _is_namespace_part(group: str, rest: list[str]) -> bool:
    return group == "" and len(rest) == 3 and rest[2] in ("status", "finalize")


def verb_of(method: str, target: Target | Unserved, query: Mapping[str, str]) -> str:
    """Return the verb of a request as rules of access name it.

    Raises:
        StatusError: 405.
    """
    named = bool(target.name)
    if method in ("GET", "HEAD"):
        watching = target.legacy_watch or query.get("watch") in ("true", "1", "")
        if watching and not target.subresource:
            return "watch"
        return "get" if named else "list"
    if method == "POST" and (not named or target.subresource):
        return "create"
    if method == "DELETE" and not target.subresource:
        return "delete" if named else "deletecollection"
    if method in _VERBS and named:
        return _VERBS[method]
    raise method_not_allowed()
