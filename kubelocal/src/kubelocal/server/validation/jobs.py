"""Who runs Jobs, when they give up and succeed, and what schedules CronJobs may have.

Order and texts: the real server's validation of batch/v1, and for schedules those of the library
that it reads them with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.metadata import qualified_name_problems, subdomain_problem

__all__ = ["failure_policy", "indexes", "managed_by", "schedule", "time_zone"]

Object = Mapping[str, Any]

_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")

_LONGEST_CONTROLLER: Final = 63
_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", re.ASCII)


def managed_by(spec: Object, field: str) -> Iterator[Cause]:
    """Check the name of the controller that runs a Job (KEP-4368): a domain and a path."""
    name = spec.get("managedBy")
    if name is None:
        return
    domain, _, path = name.partition("/")
    if not name:
        yield causes.required(field)
    elif not domain or not path:
        yield causes.bad(field, name, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        if (problem := subdomain_problem(domain)) is not None:
            yield causes.bad(field, domain, problem)
        if not _PATH.fullmatch(path):
            text = f"(e.g. 'acme.io/foo', regex used for validation is '{_PATH.pattern}')"
            yield causes.bad(field, path, f"Invalid path {text}")
    if len(name.encode()) > _LONGEST_CONTROLLER:
        yield causes.too_long(field, _LONGEST_CONTROLLER)


def indexes(spec: Object, field: str) -> Iterator[Cause]:
    """Check what only indexed Jobs may have, and when pods are replaced."""
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield causes.required(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if spec.get("completionMode") != "Indexed":
        for word in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(word) is not None:
                yield causes.bad(f"{field}.{word}", spec[word], "requires indexed completion mode")
    policy = spec.get("successPolicy")
    if policy is not None and spec.get("completionMode") == "Indexed":
        rules = policy.get("rules") or ()
        if not rules:
            yield causes.required(
                f"{field}.successPolicy.rules",
                "at least one rules must be specified when the successPolicy is specified",
            )
        for index, rule in enumerate(rules):
            if rule.get("succeededCount") is None and rule.get("succeededIndexes") is None:
                yield causes.required(
                    f"{field}.successPolicy.rules[{index}]",
                    "at least one of succeededCount or succeededIndexes must be specified",
                )
    elif policy is not None:
        yield causes.bad(f"{field}.successPolicy", policy, "requires indexed completion mode")
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None and replacement not in _REPLACEMENTS:
        yield causes.unsupported(f"{field}.podReplacementPolicy", replacement, _REPLACEMENTS)


def failure_policy(spec: Object, field: str) -> Iterator[Cause]:
    """Check a Job's podFailurePolicy; there is one."""
    policy = spec["podFailurePolicy"]
    template = (spec.get("template") or {}).get("spec") or {}
    if template.get("restartPolicy") != "Never":
        yield causes.bad(
            f"{field}.template.spec.restartPolicy",
            template.get("restartPolicy"),
            'only "Never" is supported when podFailurePolicy is specified',
        )
    for index, rule in enumerate(policy.get("rules") or ()):
        yield from _rule(rule, spec, f"{field}.podFailurePolicy.rules[{index}]")


def _rule(rule: Object, spec: Object, field: str) -> Iterator[Cause]:
    action = rule.get("action")
    if not action:
        valid = ", ".join(f"{each!r}" for each in _ACTIONS)
        yield causes.required(f"{field}.action", f"valid values: {valid}")
    elif action not in _ACTIONS:
        yield causes.unsupported(f"{field}.action", action, _ACTIONS)
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        text = "requires the backoffLimitPerIndex to be set"
        yield causes.bad(f"{field}.action", action, text)
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        yield from _exit_codes(codes, f"{field}.onExitCodes")
    for index, condition in enumerate(conditions):
        here = f"{field}.onPodConditions[{index}]"
        kind, status = condition.get("type", ""), condition.get("status", "")
        for problem in qualified_name_problems(kind):
            yield causes.bad(f"{here}.type", kind, problem)
        if not status:
            yield causes.required(f"{here}.status", 'valid values: "False", "True", "Unknown"')
        elif status not in ("False", "True", "Unknown"):
            yield causes.unsupported(f"{here}.status", status, ("False", "True", "Unknown"))
    if codes is not None and conditions:
        text = "specifying both OnExitCodes and OnPodConditions is not supported"
        yield causes.bad(field, _internal(rule), text)
    if codes is None and not conditions:
        text = "specifying one of OnExitCodes and OnPodConditions is required"
        yield causes.bad(field, _internal(rule), text)


def _exit_codes(codes: Object, field: str) -> Iterator[Cause]:
    operator, values = codes.get("operator", ""), list(codes.get("values") or ())
    if not operator:
        yield causes.required(f"{field}.operator", 'valid values: "In", "NotIn"')
    elif operator not in ("In", "NotIn"):
        yield causes.unsupported(f"{field}.operator", operator, ("In", "NotIn"))
    if not values:
        yield causes.bad(f"{field}.values", values, "at least one value is required")
    elif len(values) > 255:
        yield causes.too_many(f"{field}.values", len(values), 255)
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield causes.bad(f"{field}.values[{index}]", 0, "must not be 0 for the In operator")
        if value in values[:index]:
            yield causes.duplicate(f"{field}.values[{index}]", value)
    if values != sorted(values):
        yield causes.bad(f"{field}.values", values, "must be ordered")


def _internal(rule: Object) -> Object:
    codes = rule.get("onExitCodes")
    return {
        "Action": rule.get("action", ""),
        "OnExitCodes": codes
        and {
            "ContainerName": codes.get("containerName"),
            "Operator": codes.get("operator", ""),
            "Values": codes.get("values"),
        },
        "OnPodConditions": [
            {"Type": each.get("type", ""), "Status": each.get("status", "")}
            for each in rule.get("onPodConditions") or ()
        ]
        or None,
    }


_DESCRIPTORS: Final = re.compile(r"@(yearly|annually|monthly|weekly|daily|midnight|hourly)")
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# Least and greatest value of each field, and the names of values from the least one on.
_FIELDS: Final[tuple[tuple[int, int, Sequence[str]], ...]] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)


def schedule(text: str, field: str) -> Iterator[Cause]:
    """Yield what keeps `text` from being a CronJob's schedule; it is not empty."""
    fields = text.split()
    if fields[0].startswith(("TZ=", "CRON_TZ=")):
        fields = fields[1:]
    if text.startswith("@"):
        known = _DESCRIPTORS.fullmatch(text) or re.fullmatch(r"@every \S+", text)
        problem = None if known else f"unrecognized descriptor: {text}"
    elif len(fields) != 5:
        problem = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    else:
        problem = next(
            (
                found
                for each, (least, most, names) in zip(fields, _FIELDS, strict=True)
                for part in each.split(",")
                if (found := _range_problem(part, least, most, names)) is not None
            ),
            None,
        )
    if problem is not None:
        yield causes.bad(field, text, problem)
    if "TZ" in text:
        text_zone = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield causes.bad(field, text, text_zone)


def _range_problem(text: str, least: int, most: int, names: Sequence[str]) -> str | None:
    between, *steps = text.split("/")
    ends = between.split("-")
    if ends[0] in ("*", "?"):
        low, high = least, most
    else:
        numbers = []
        for end in ends[:2]:
            if end.lower() in names:
                numbers.append(least + list(names).index(end.lower()))
            elif (problem := _number_problem(end)) is not None:
                return problem
            else:
                numbers.append(int(end))
        if len(ends) > 2:
            return f"too many hyphens: {text}"
        low, high = numbers[0], numbers[-1]
        if steps and len(ends) == 1:
            high = most
    if len(steps) > 1:
        return f"too many slashes: {text}"
    if steps and (problem := _number_problem(steps[0])) is not None:
        return problem
    if low < least:
        return f"beginning of range ({low}) below minimum ({least}): {text}"
    if high > most:
        return f"end of range ({high}) above maximum ({most}): {text}"
    if low > high:
        return f"beginning of range ({low}) beyond end of range ({high}): {text}"
    if steps and int(steps[0]) == 0:
        return f"step of range should be a positive number: {text}"
    return None


def _number_problem(text: str) -> str | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
    return f"negative number ({int(text)}) not allowed: {text}" if int(text) < 0 else None


def time_zone(name: str | None, field: str) -> Iterator[Cause]:
    """Yield what keeps `name` from being a time zone."""
    if name is None:
        return
    if not name:
        yield causes.bad(field, name, "timeZone must be nil or non-empty string")
    elif name.lower() == "local":
        yield causes.bad(
            field,
            name,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        )
    else:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield causes.bad(field, name, f"unknown time zone {name}")
