"""Names that disclose nothing: an HMAC of each, under a key that is never kept.

The same name is the same pseudonym everywhere in one snapshot, so that references, labels and
selectors mean what they meant, and no pseudonym can be related to another snapshot's. What the API
itself states stays: words of enumerations, quantities, instants, and the names of well-known
resources and labels. Whatever is not known to be such a word is treated as a name; messages are
left out. What depends on the order or the form of names (ties, names made of names) may be decided
otherwise than in the cluster.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any, Final

from kubeworld.units.quantities import InvalidQuantity, parse_exact
from kubeworld.units.untrusted import Form
from reprieve.kube.bodies import Json
from reprieve.whatif.snapshots.pruning import field_names

__all__ = ["Pseudonyms"]

_LETTERS: Final = 12  # of a pseudonym, hexadecimal
#: Fields whose values are words of the API, or numbers and instants as text.
_WORDS: Final = frozenset(
    (
        "apiVersion",
        "kind",
        "action",
        "admissionMode",
        "effect",
        "group",
        "level",
        "mode",
        "operator",
        "per",
        "phase",
        "plane",
        "planes",
        "policy",
        "preemptionPolicy",
        "preference",
        "queueingStrategy",
        "reason",
        "restartPolicy",
        "rule",
        "schedule",
        "scope",
        "state",
        "status",
        "stopPolicy",
        "accessModes",
        "protocol",
        "reclaimWithinCohort",
        "type",
        "volumeBindingMode",
        "whenCanBorrow",
        "whenCanPreempt",
        "whenExhausted",
        "whenUnsatisfiable",
        "withinClusterQueue",
    )
)
#: Fields whose keys are names, or well known; other maps have resources for keys.
_MAPS: Final = ("annotations", "labels", "matchLabels", "nodeLabels", "nodeSelector")
_LEFT_OUT: Final = frozenset(("message", "description", "finalizers"))
#: Domains whose names are the same in every cluster.
_KNOWN_DOMAINS: Final = (
    "k8s.io",
    "kubernetes.io",
    "koordinator.sh",
    "reprieve.dev",
    "kaiwo.silogen.ai",
    "nvidia.com",
    "amd.com",
    "gpu.intel.com",
    "habana.ai",
    "google.com",
    "amazonaws.com",
)
_KNOWN: Final = frozenset(
    (
        "",
        "cpu",
        "default",
        "default-scheduler",
        "ephemeral-storage",
        "main",
        "memory",
        "pods",
        "reprieve-scheduler",
        "system-cluster-critical",
        "system-node-critical",
    )
)
_INSTANT: Final = Form(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]++Z?+")
_DURATION: Final = Form(r"(?:[0-9]++(?:\.[0-9]++)?+(?:h|ms|m|s|us|ns))++")
_UID: Final = Form(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TRUTH: Final = ("true", "false", "True", "False", "Unknown")


class Pseudonyms:
    """Names and their pseudonyms, under one key; without `key` it is a new one, kept nowhere."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._known: dict[str, str] = {}

    def object(self, obj: Json) -> Json:
        """Return an object with pseudonyms in the place of names."""
        found: Json = self._value(obj)
        return found

    def of(self, text: str) -> str:
        """Return what stands for a text: a name, several with slashes between, or a word."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._made(text)
        return found

    def _made(self, text: str) -> str:
        if _is_word(text):
            return text
        digits = hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
        if _UID.fullmatch(text):
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
        domain, slash, name = text.partition("/")
        if slash and domain.endswith(_KNOWN_DOMAINS):
            return text
        if slash:
            return f"{self.of(domain)}/{self.of(name)}"
        return f"x{digits[:_LETTERS]}"

    def _value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            if name in _MAPS:
                return {self.of(key): self._value(each) for key, each in value.items()}
            return {
                key if key in field_names() else self.of(key): self._value(each, key)
                for key, each in value.items()
                if key not in _LEFT_OUT
            }
        if isinstance(value, list):
            return [self._value(each, name) for each in value]
        if isinstance(value, str) and name not in _WORDS:
            return self.of(value)
        return value


def _is_word(text: str) -> bool:
    """Return whether a text is no name: known everywhere, a number, an instant."""
    if text in _KNOWN or text in _TRUTH:
        return True
    if _INSTANT.fullmatch(text) or _DURATION.fullmatch(text):
        return True
    try:
        parse_exact(text)
    except InvalidQuantity:
        return False
    return True
