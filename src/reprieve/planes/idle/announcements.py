"""What is reported once: pods without usable root, foreign Preemptions, unusable configuration."""

from __future__ import annotations

from kubeworld.units.untrusted import cut, shown
from reprieve.api.kaiwo import CONFIG_NAME, KAIWO_CONFIG_API_VERSION
from reprieve.api.reprieve import API_VERSION, ON_PREEMPTION, Action
from reprieve.engine.idle.discovery import OwnerForbidden, ResolutionError, Root
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.records import ConfigRecord, IntentRecord, PodRecord
from reprieve.settings.idle import Notice, Rejected
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording.events import EventText
from reprieve.wording.kaiwo import resolution_error_text

__all__ = [
    "report_denied",
    "report_foreign",
    "report_ignored_config",
    "report_overridden",
    "report_rejected",
    "report_rejected_spec",
    "report_unknown_action",
    "report_unresolved",
]


def report_unresolved(context: IdleContext, pod: PodRecord, error: ResolutionError) -> None:
    """Report that a pod is not tracked and why: once for each kind of owner in between."""
    text = resolution_error_text(error)
    at = error.lookup

    def emit() -> None:
        log.warning("pod %s/%s is not tracked: %s", pod.namespace, pod.name, text)
        reason = "OwnerForbidden" if isinstance(error, OwnerForbidden) else "OwnerUnresolved"
        about = Reference("v1", "Pod", pod.namespace, pod.name, Uid(pod.uid))
        context.announce(about, EventText("Warning", reason, text))

    context.log_once(f"{type(error).__name__}/{at.api_version}/{at.kind}", emit)


def report_denied(context: IdleContext, pod: PodRecord, root: Root) -> None:
    """Report that a pod's owners end below the controller that is named there, which denies it."""
    message = (
        f"{root.denied_by} does not select {root.ref}, which names it as its controller, and is "
        "not its root: it is followed as a workload of its own"
    )

    def emit() -> None:
        log.warning("pod %s/%s: %s", pod.namespace, pod.name, message)
        about = Reference("v1", "Pod", pod.namespace, pod.name, Uid(pod.uid))
        context.announce(about, EventText("Warning", "OwnerDenied", message))

    context.log_once(f"denied/{root.ref.uid}", emit)


def report_foreign(context: IdleContext, record: IntentRecord, namespace: str) -> None:
    """Report that a Preemption outside of the operator's namespace is ignored."""

    def emit() -> None:
        message = (
            f"Preemption {record.namespace}/{record.name} is ignored: only those in "
            f"{namespace}, written by the operator, count"
        )
        log.warning("%s", message)
        about = Reference(API_VERSION, "Preemption", record.namespace, record.name, Uid(record.uid))
        context.announce(about, EventText("Warning", "ForeignPreemption", message))

    context.log_once(f"foreign/{record.uid}", emit)


def report_ignored_config(context: IdleContext, record: ConfigRecord) -> None:
    """Report that a KaiwoConfig of another name changes nothing."""

    def emit() -> None:
        message = (
            f"KaiwoConfig/{record.name} is ignored: only the one named {CONFIG_NAME} is read; "
            "rename it, or set its spec.gpuPreemption there"
        )
        log.warning("%s", message)
        about = Reference(KAIWO_CONFIG_API_VERSION, "KaiwoConfig", "", record.name, Uid(record.uid))
        context.announce(about, EventText("Warning", "Ignored", message))

    context.log_once(f"config/{record.uid}", emit)


def report_rejected(context: IdleContext, rejected: Rejected) -> None:
    """Report that a value of the KaiwoConfig is not accepted and therefore not in force."""
    message = f"{rejected.where} is {shown(rejected.value)}; accepted: {rejected.accepted}"
    log.warning("%s", message)
    about = Reference(KAIWO_CONFIG_API_VERSION, "KaiwoConfig", "", CONFIG_NAME, Uid(""))
    context.announce(about, EventText("Warning", "InvalidValue", message))


def report_rejected_spec(context: IdleContext, of: Reference, rejected: Rejected) -> None:
    """Report that a value in the spec of a GpuWorkload is not accepted and not in force."""

    def emit() -> None:
        message = f"{rejected.where} is {shown(rejected.value)}; accepted: {rejected.accepted}"
        log.warning("%s: %s", of, message)
        context.announce(of, EventText("Warning", "InvalidValue", message))

    context.log_once(f"{of.uid}/{rejected.where}/{rejected.value}", emit)


def report_overridden(
    context: IdleContext, workload: Reference, root: Reference, one: Notice
) -> None:
    """Report on root and GpuWorkload that a field overrides an annotation."""
    message = cut(f"annotation {one.where} is {one.value} and is {one.text}")
    named = message.replace(
        "overridden by spec.", f"overridden by GpuWorkload/{workload.name} spec."
    )

    def emit() -> None:
        log.warning("%s: %s", root, named)
        context.announce(root, EventText("Warning", "AnnotationOverridden", named))
        context.announce(workload, EventText("Warning", "AnnotationOverridden", message))

    context.log_once(f"{root.uid}/{named}", emit)


def report_unknown_action(context: IdleContext, root: Reference, text: str) -> None:
    """Report that an annotation of a root names no action, and what happens to the root instead."""
    message = cut(
        f"annotation {ON_PREEMPTION} of {root} is {shown(text)}; accepted: {', '.join(Action)}; "
        f"in force: {Action.DELETE}"
    )
    context.log_once(
        f"{root.uid}/{message}",
        lambda: context.announce(root, EventText("Warning", "InvalidAnnotation", message)),
    )
