"""Prometheus text -> utilisation samples, reading in full only the lines that are wanted.

A node exporter sends some hundred lines for each one that states how busy a GPU is. One expression
runs over everything else and checks no more than the shape of a line (name, braces, number, time;
words of TYPE and HELP), so that a body that is not Prometheus text is refused as a whole; lines of
wanted families are parsed with their escapes and quoted names. Text may come in pieces of any size,
so that memory does not grow with the body.

Which families, labels and types count, and what makes a value unusable: specification of the idle
plane, section 10 and hazards H5 and H6. Text that does not parse changes nothing there, and its
parser is Go's of the text format, version 0.0.4 (prometheus/common, `expfmt`). What that refuses is
refused here: exemplars, times that are no whole milliseconds, blanks at the end of a sample, types
and escapes that the format does not have, labels that are reserved or stand there twice, numbers
beyond what a float holds, a second TYPE or HELP of a family, and a TYPE after samples. Looser than
that is only what is read of families that are not wanted: what stands in their braces, and how
often they are declared. Names may be quoted as in version 1.0.0. A last line without its newline is
refused: a body that was cut off inside a number would read 9 for 95, and busy work would look idle.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reprieve.engine.idle.vendors import Vendor

__all__ = [
    "Defect",
    "Exposition",
    "ExpositionParser",
    "InvalidSample",
    "MalformedExposition",
    "Sample",
    "parse_exposition",
    "parse_samples",
    "read_value",
    "without_less_preferred",
]

# No namespace and no pod has a longer name, and no GPU that is known a longer id.
_LONGEST_NAMESPACE: Final = 63
_LONGEST_POD: Final = 253
_LONGEST_GPU: Final = 256
# Longer lines are not Prometheus text; without a bound, a body without newlines would be held.
MAXIMUM_LINE_BYTES: Final = 1 << 20

_GAUGES: Final = frozenset({"gauge", "untyped"})
_ACCEPTED: Final = (
    'comments and name{label="value",...} number [milliseconds]; of each family at most one HELP, '
    "and one TYPE before its samples"
)
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

_NAME: Final = rb"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_NUMBER: Final = (
    rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?+[0-9]++)?+"
    rb"|\.[0-9]++(?:[eE][+-]?+[0-9]++)?+|(?i:inf(?:inity)?+)|(?<![+-])(?i:nan))"
)
_TIME: Final = rb"(?:[ \t]++[+-]?+[0-9]{1,19}+)?+"
_OWN_TIME: Final = rb"(?:[ \t]++([+-]?+[0-9]{1,19}+))?+"
_QUOTED: Final = rb'"(?:[^"\\\n]++|\\[\\"n])*+"'
_NAMED: Final = rb'(?!"")' + _QUOTED
_LABEL: Final = (
    rb"(?!\"?__name__[ \t\"=])(?:[a-zA-Z_][a-zA-Z0-9_]*+|" + _NAMED + rb")[ \t]*+=[ \t]*+" + _QUOTED
)
_ITEM: Final = rb"[ \t]*+(?:" + _LABEL + rb"|" + _NAMED + rb")[ \t]*+"
_LABELS: Final = rb"\{((?:" + _ITEM + rb"(?:," + _ITEM + rb")*+,?+)?+[ \t]*+)\}"

_SAMPLE_LINE: Final = re.compile(
    rb"[ \t]*+("
    + _NAME
    + rb")?+[ \t]*+(?:"
    + _LABELS
    + rb")?+[ \t]*+("
    + _NUMBER
    + rb")"
    + _OWN_TIME
)
_PAIR: Final = re.compile(
    rb"([a-zA-Z_][a-zA-Z0-9_]*+|" + _QUOTED + rb")[ \t]*+(?:=[ \t]*+(" + _QUOTED + rb"))?+"
)
_TYPE: Final = rb"(?i:counter|gauge(?:_histogram)?+|histogram|summary|untyped)?+"
_HELP: Final = rb'(?:[^\\\n]++|\\[\\"n])*+'
_REST: Final = {b"TYPE": re.compile(_TYPE), b"HELP": re.compile(_HELP)}
_DECLARATION: Final = re.compile(
    rb"[ \t]*+#[ \t]*+(TYPE|HELP)"
    rb"(?:[ \t]++(?:(" + _NAME + rb"|" + _NAMED + rb")(?:[ \t]++([^\n]*+))?+)?+)?+"
)
_EXEMPLAR: Final = re.compile(rb"#[ \t]*+\{")
_ESCAPE: Final = re.compile(r'\\[\\"n]')


class MalformedExposition(ValueError):
    """The text is not a Prometheus exposition; the message shows the first line that is not."""


class Defect(StrEnum):
    """Why a sample of a pod cannot be used (hazard H5)."""

    NAN = "NaN"
    INFINITE = "Infinite"
    NEGATIVE = "Negative"
    ABOVE_100 = "Above100"
    TOO_MANY = "TooMany"  # more samples than the GPUs of any node
    OLD = "Old"  # by the time that stands on its line


@dataclass(frozen=True, slots=True)
class Sample:
    """How busy one GPU, or one partition of it, of one pod is.

    `utilization` is percent 0-100, not rounded. `gpu_id` and `partition` may be empty. `at`: the
    Unix milliseconds that stand on its line, None for most exporters. `scraped`: what the labels
    `job` and `instance` state, which a Prometheus or a collector in front of exporters adds.
    `uuid`: of the device, empty where the exporter states none. `partitioned`: it is a part of a
    GPU.
    """

    namespace: str
    pod: str
    gpu_id: str
    partition: str
    utilization: float
    vendor: str  # Vendor.name
    metric: str
    at: int | None = None
    scraped: tuple[str, str] = ("", "")
    uuid: str = ""
    partitioned: bool = False


@dataclass(frozen=True, slots=True)
class InvalidSample:
    """A sample that names a pod and has a value that no GPU can have."""

    namespace: str
    pod: str
    gpu_id: str
    defect: Defect


@dataclass(frozen=True, slots=True)
class Exposition:
    """What one body states; lists are in the order of the text.

    `unassigned`: number of samples that name no pod, that is, of GPUs no work holds.
    """

    samples: list[Sample]
    invalid: list[InvalidSample]
    unassigned: int


def parse_samples(text: bytes, vendors: Sequence[Vendor]) -> list[Sample]:
    """Return the usable samples of `text` in its order.

    Raises:
        MalformedExposition: some line is not Prometheus text; nothing of the text may be used.
    """
    return parse_exposition(text, vendors).samples


def parse_exposition(text: bytes, vendors: Sequence[Vendor]) -> Exposition:
    """Return all that `text` states about the vendors' GPUs.

    Raises:
        MalformedExposition: some line is not Prometheus text; nothing of the text may be used.
    """
    parser = ExpositionParser(vendors)
    parser.feed(text)
    return parser.finish()


class ExpositionParser:
    """Reads one exposition that comes in pieces.

    Use: `feed` each piece, then `finish`. After a `MalformedExposition` the parser is spent.
    Complexity: one pass over the bytes; objects are made for wanted lines only.
    """

    def __init__(self, vendors: Sequence[Vendor]) -> None:
        self._families = {
            metric.name: (vendor, metric.name, metric.scale)
            for vendor in vendors
            for metric in vendor.metrics
        }
        self._names = {name.encode(): name for name in self._families}
        self._ranked = any(len(vendor.metrics) > 1 for vendor in vendors)
        self._vendors = vendors
        self._others = _other_lines(self._families, exemplars=False)
        self._others_beside_exemplars = _other_lines(self._families, exemplars=True)
        # Families whose TYPE line names a type that carries no current value.
        self._skipped: set[str] = set()
        # Wanted families of which a sample was read, and their declarations so far.
        self._sampled: set[str] = set()
        self._declared: set[tuple[bytes, str]] = set()
        # The beginning of a line whose newline has not come yet.
        self._rest = b""
        self._samples: list[Sample] = []
        self._invalid: list[InvalidSample] = []
        self._unassigned = 0

    @property
    def held(self) -> int:
        """The number of samples that were read so far."""
        return len(self._samples) + len(self._invalid)

    def feed(self, piece: bytes) -> None:
        """Read the complete lines of what came so far.

        Raises:
            MalformedExposition: a line is not Prometheus text or longer than 1 MiB.
        """
        end = piece.rfind(b"\n") + 1
        if len(self._rest) + (len(piece) - end if end else len(piece)) > MAXIMUM_LINE_BYTES:
            raise MalformedExposition("a line is longer than 1 MiB: not a Prometheus exposition")
        if not end:
            self._rest += piece
            return
        text = piece if end == len(piece) else piece[:end]
        if self._rest:
            text = self._rest + text
        self._rest = piece[end:]
        self._read(text)

    def finish(self) -> Exposition:
        """Return what was read.

        Raises:
            MalformedExposition: the last line is not Prometheus text, or has no newline.
        """
        if self._rest.strip(b" \t"):
            rest, self._rest = self._rest, b""
            self._read(rest + b"\n")
            shown = rest[:120].decode(errors="backslashreplace")
            raise MalformedExposition(
                f"the last line has no newline, the text may be cut off: {shown!r}; accepted: "
                "lines that all end with a newline"
            )
        samples = self._samples
        if self._ranked:
            samples = without_less_preferred(samples, self._vendors)
        return Exposition(samples, self._invalid, self._unassigned)

    def _read(self, text: bytes) -> None:
        """Read `text`, which ends with a newline."""
        others, end, position = self._others, len(text), 0
        if _EXEMPLAR.search(text):
            others = self._others_beside_exemplars
        while True:
            run = others.match(text, position)
            position = run.end() if run else position
            if position >= end:
                return
            newline = text.index(b"\n", position)
            line = text[position:newline]
            position = newline + 1
            if line.lstrip(b" \t").startswith(b"#"):
                self._read_declaration(line)
            else:
                self._read_sample(line)

    def _read_declaration(self, line: bytes) -> None:
        form = _DECLARATION.fullmatch(line)
        if form is None:
            raise _malformed(line)
        keyword, raw_name, rest = form.groups()
        if rest is not None and _REST[keyword].fullmatch(rest) is None:
            raise _malformed(line)
        if not rest:
            return  # a declaration that states nothing
        name = _text(raw_name, line)
        if name not in self._families:
            return
        if (keyword, name) in self._declared:
            raise _malformed(line, f"a second {keyword.decode()} of its family")
        self._declared.add((keyword, name))
        if keyword == b"TYPE":
            if name in self._sampled:
                raise _malformed(line, "TYPE after samples of its family")
            if rest.decode().lower() not in _GAUGES:
                self._skipped.add(name)

    def _read_sample(self, line: bytes) -> None:
        form = _SAMPLE_LINE.fullmatch(line)
        if form is None:
            raise _malformed(line)
        raw_name, raw_labels, value, time = form.groups()
        labels: dict[str, str] = {}
        name = self._names.get(raw_name) if raw_name else None
        for key, content in _PAIR.findall(raw_labels) if raw_labels else ():
            text = _text(key, line)
            if content:
                if text in labels:
                    raise _malformed(line)
                labels[text] = _text(content, line)
            elif raw_name is None and key.startswith(b'"'):
                raw_name, name = key, text
            else:
                raise _malformed(line)
        if raw_name is None:
            raise _malformed(line)
        number = float(value)
        if math.isinf(number) and b"n" not in value.lower():
            raise _malformed(line)  # more than a float holds
        if name not in self._families:
            return
        self._sampled.add(name)
        if name in self._skipped:
            return
        vendor, metric, scale = self._families[name]
        outcome = read_value(
            vendor, metric, scale, labels, number, None if time is None else int(time)
        )
        if outcome is None:
            self._unassigned += 1
        elif isinstance(outcome, Sample):
            self._samples.append(outcome)
        else:
            self._invalid.append(outcome)


def read_value(
    vendor: Vendor,
    metric: str,
    scale: float,
    labels: Mapping[str, str],
    value: float,
    at: int | None = None,
) -> Sample | InvalidSample | None:
    """Return what one series states; None when it names no pod (a GPU without holder).

    Nor does it where a label is longer than any pod's or GPU's: what is held stays small.
    """
    namespace = _first(labels, vendor.namespace_labels)
    pod = _first(labels, vendor.pod_labels)
    if not 0 < len(namespace) <= _LONGEST_NAMESPACE or not 0 < len(pod) <= _LONGEST_POD:
        return None
    gpu_id = _first(labels, vendor.gpu_labels)
    partition = _first(labels, vendor.partition_labels)
    if len(gpu_id) + len(partition) > _LONGEST_GPU:
        return None
    percent = value * scale
    if 0.0 <= percent <= 100.0:
        scraped = sys.intern(labels.get("job", "")), sys.intern(labels.get("instance", ""))
        uuid = sys.intern(_first(labels, vendor.uuid_labels))
        mode = labels.get(vendor.mode_label, "").lower()
        return Sample(
            namespace,
            pod,
            gpu_id,
            partition,
            percent,
            vendor.name,
            metric,
            at,
            scraped,
            uuid if len(uuid) <= _LONGEST_GPU else "",
            mode not in vendor.whole if vendor.mode_label else False,
        )
    if math.isnan(percent):
        defect = Defect.NAN
    elif math.isinf(percent):
        defect = Defect.INFINITE
    else:
        defect = Defect.NEGATIVE if percent < 0 else Defect.ABOVE_100
    return InvalidSample(namespace, pod, gpu_id, defect)


def without_less_preferred(samples: list[Sample], vendors: Sequence[Vendor]) -> list[Sample]:
    """Return `samples` without those of a GPU for which the same pod has a better metric.

    Order: 1. metrics of partitions for partitions, of whole GPUs for these; 2. the vendor's order.
    """
    ranks = {
        (m.name, partitioned): (m.of_partitions is not partitioned, rank)
        for vendor in vendors
        for rank, m in enumerate(vendor.metrics)
        for partitioned in (False, True)
    }
    best: dict[tuple[str, str, str, str], tuple[bool, int]] = {}
    ranked = [(each, ranks[each.metric, each.partitioned]) for each in samples]
    for sample, rank in ranked:
        key = (sample.vendor, sample.namespace, sample.pod, sample.gpu_id)
        best[key] = min(best.get(key, rank), rank)
    return [
        sample
        for sample, rank in ranked
        if rank == best[(sample.vendor, sample.namespace, sample.pod, sample.gpu_id)]
    ]


def _other_lines(wanted: Iterable[str], *, exemplars: bool) -> re.Pattern[bytes]:
    """Return an expression that matches the longest run of whole lines that need no reading.

    Those are blank lines, comments that declare nothing of a wanted (or quoted) name, and samples
    whose name stands before the braces and is not wanted. The repetition is possessive: a run of a
    million lines needs no stack. `exemplars`: the text may have some, whose braces are not those of
    labels; then a line with more braces than two is read in full, which is slower.
    """
    names = b"|".join(re.escape(name.encode()) for name in wanted) or rb"(?!)"
    comment = rb"#[ \t]*+(?!(?:TYPE|HELP)[ \t\n])[^\n]*+"
    other = rb"(?!(?:" + names + rb")[ \t\n])" + _NAME
    declaration = b"|".join(
        rb"#[ \t]*+%b(?:[ \t]++(?:%b(?:[ \t]++%b)?+)?+)?+" % (keyword, other, rest.pattern)
        for keyword, rest in _REST.items()
    )
    labels = rb"\{[^\n}]*+\}" if exemplars else rb"\{[^\n]*\}"
    sample = (
        rb"(?!(?:" + names + rb")[ \t{])" + _NAME + rb"[ \t]*+(?:" + labels + rb")?+[ \t]*+"
        rb"(?<![a-zA-Z0-9_:])" + _NUMBER + _TIME
    )
    return re.compile(
        rb"(?:[ \t]*+(?:" + sample + rb"|" + comment + rb"|" + declaration + rb")?+\n)++"
    )


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        value = labels.get(name)
        if value:
            return value
    return ""


def _text(token: bytes, line: bytes) -> str:
    """Return the text of a bare name, or of a quoted string with its escapes."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise _malformed(line) from None
    if not text.startswith('"'):
        return text
    text = text[1:-1]
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape.group()], text) if "\\" in text else text


def _malformed(
    line: bytes, what: str = "not a line of a Prometheus exposition"
) -> MalformedExposition:
    shown = line[:120].decode(errors="backslashreplace")
    return MalformedExposition(f"{what}: {shown!r}; accepted: {_ACCEPTED}")
