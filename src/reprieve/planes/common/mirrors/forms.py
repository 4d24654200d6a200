"""In which form the followers of a kind get its objects, all made of the same bytes.

1. A follower that reads with a struct gets the widest struct that any of them requests (`WIDER`).
2. A follower that reads with `dict` gets objects as JSON has them. Where others read the kind with
   a struct, both are made of the same bytes (`Twofold`).
3. A follower that names the objects it wants whole (`Form.whole`) gets those as JSON has them, and
   for all others what it reads of them with its struct: no dict is made of what is dropped again.

Structs that have nothing to do with each other are not brought together: the kind is read once for
each. Source: the design's "How data flows".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_origin

import msgspec

from reprieve.api import core, kueue, scheduling
from reprieve.kube.bodies import Json
from reprieve.kube.decoding import Reading

__all__ = ["WIDER", "Form", "Twofold", "read_for"]

W = TypeVar("W")

#: Types that read more of the same objects under the same names: what needs the one can have the
#: other. `tests/controllers/test_mirror.py` compares them field by field.
WIDER: Final[Mapping[type, type]] = MappingProxyType(
    {
        core.Pod: scheduling.PodObject,
        core.Node: scheduling.NodeObject,
        core.KueueWorkload: kueue.Workload,
    }
)

_WHOLE: Final = msgspec.json.Decoder(dict[str, Any])


class Twofold(NamedTuple):
    """One object: what a struct reads of it, and all of it where a reader wants that."""

    part: Any
    whole: Json | None

    @property
    def metadata(self) -> Any:
        """The metadata of the struct."""
        return self.part.metadata


@dataclass(frozen=True, slots=True)
class Form(Generic[W]):
    """What one follower reads: a struct or `dict`, and which objects whole beside the struct."""

    type: type[W]
    whole: Callable[[W], bool] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all objects are wanted as JSON has them."""
        return self.type is dict or get_origin(self.type) is dict

    def goes_with(self, other: Form[Any]) -> bool:
        """Whether both can be made of one reading of the kind."""
        if self.is_whole or other.is_whole:
            return True
        return _reads_all_of(self.type, other.type) or _reads_all_of(other.type, self.type)

    def of(self, obj: Any) -> Any:
        """Return what the follower gets of an object as it was read for all."""
        if not isinstance(obj, Twofold):
            return obj
        if self.is_whole or (self.whole is not None and self.whole(obj.part)):
            return obj.whole
        return obj.part


def read_for(forms: Sequence[Form[Any]]) -> type[Any] | Reading[Any]:
    """Return how a kind is read for all of these, which belong together."""
    structs = [form for form in forms if not form.is_whole]
    if not structs:
        return forms[0].type
    widest = _widest(form.type for form in structs)
    if len(structs) < len(forms):
        return _twofold(widest, lambda part: True)
    asked = [form.whole for form in structs if form.whole is not None]
    if not asked:
        return widest
    return _twofold(widest, lambda part: any(whole(part) for whole in asked))


def _twofold(type: type[Any], wanted: Callable[[Any], bool]) -> Reading[Twofold]:
    parts = msgspec.json.Decoder(type)

    def read(raw: bytes | msgspec.Raw) -> Twofold:
        part = parts.decode(raw)
        return Twofold(part, _WHOLE.decode(raw) if wanted(part) else None)

    return Reading(read)


def _widest(types: Iterable[type]) -> type:
    first, *others = types
    for each in others:
        first = each if _reads_all_of(each, first) else first
    return first


def _reads_all_of(wide: type, narrow: type) -> bool:
    return wide == narrow or WIDER.get(narrow) is wide or issubclass(wide, narrow)
