"""What is told once: pods without a usable root, foreign Preemptions, unusable configuration."""

from __future__ import annotations

from reprieve.api.kaiwo import CONFIG_NAME, KAIWO_CONFIG_API_VERSION
from reprieve.api.reprieve import API_VERSION, ON_PREEMPTION, Action
from reprieve.controllers.idle.context import IdleContext, log
from reprieve.controllers.idle.records import IntentRecord, PodRecord
from reprieve.engine.idle.discovery import OwnerForbidden, ResolutionError
from reprieve.engine.plan import Ref
from reprieve.settings.idle import Rejected
from reprieve.units.ids import Uid
from reprieve.wording.kaiwo import EventText, resolution_error_text

__all__ = ["tell_foreign", "tell_rejected", "tell_unknown_action", "tell_unresolved"]


def tell_unresolved(context: IdleContext, pod: PodRecord, error: ResolutionError) -> None:
    """Say that a pod is not tracked and why: once for each kind of owner that is in the way."""
    text = resolution_error_text(error)
    at = error.lookup

    def say() -> None:
        log.warning("pod %s/%s is not tracked: %s", pod.namespace, pod.name, text)
        reason = "OwnerForbidden" if isinstance(error, OwnerForbidden) else "OwnerUnresolved"
        about = Ref("v1", "Pod", pod.namespace, pod.name, Uid(pod.uid))
        context.announce(about, EventText("Warning", reason, text))

    context.say_once(f"{type(error).__name__}/{at.api_version}/{at.kind}", say)


def tell_foreign(context: IdleContext, record: IntentRecord, namespace: str) -> None:
    """Say that a Preemption outside of the operator's namespace is ignored."""

    def say() -> None:
        message = (
            f"Preemption {record.namespace}/{record.name} is ignored: only those in "
            f"{namespace}, written by the operator, count"
        )
        log.warning("%s", message)
        about = Ref(API_VERSION, "Preemption", record.namespace, record.name, Uid(record.uid))
        context.announce(about, EventText("Warning", "ForeignPreemption", message))

    context.say_once(f"foreign/{record.uid}", say)


def tell_rejected(context: IdleContext, rejected: Rejected) -> None:
    """Say that a value of the KaiwoConfig is not accepted and therefore not in force."""
    message = f"{rejected.where} is {rejected.value!r}; accepted: {rejected.accepted}"
    log.warning("%s", message)
    about = Ref(KAIWO_CONFIG_API_VERSION, "KaiwoConfig", "", CONFIG_NAME, Uid(""))
    context.announce(about, EventText("Warning", "InvalidValue", message))


def tell_unknown_action(context: IdleContext, root: Ref, text: str) -> None:
    """Say that a root is left alone because its annotation names no action."""
    message = (
        f"{root} is not preempted: annotation {ON_PREEMPTION} is {text!r}; "
        f"accepted: {', '.join(Action)}"
    )
    context.say_once(
        f"{root.uid}/{message}",
        lambda: context.announce(root, EventText("Warning", "InvalidAnnotation", message)),
    )
