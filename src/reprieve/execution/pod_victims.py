"""How a pod is preempted: it is marked with `DisruptionTarget`, then deleted with its own grace.

Both calls name uid and resourceVersion; a pod that is deleted, replaced or being deleted gets no
call. A pod that has changed since is read and judged again, and the call then names its uid alone:
otherwise a user who may patch a pod could keep it for as long as he patches it. A refusal is tried
again a few times. A 404 states that a pod is deleted only where it cannot be read either. Plans may
name the same pod: a pod that already ends still stands on its node when the next plan is made, and
a preemptor of higher priority may choose a victim that a lower one has chosen. Such plans process
it in turn. It counts as evicted by the plan whose call deleted it; for all others it had already
ended. Source: specification 7.2, 7.3 and 9.2 to 9.4; the design's
"Intent log and executor".
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant
from reprieve.api.reprieve import Preemption, Victim, VictimState
from reprieve.execution.fence import Deposed, Fence
from reprieve.execution.unanswered import Unanswered
from reprieve.execution.victims import Marked, Reading, Standing, VictimResult
from reprieve.execution.writes.contest import Contest
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.kube.bodies import Json, PatchType
from reprieve.kube.client import Client
from reprieve.kube.errors import ApiError, Forbidden, Invalid, NotFound, ServerError, Unreachable
from reprieve.kube.resource import PODS
from reprieve.kube.retry import AWAY, UNSETTLED, is_silent, retried
from reprieve.kube.writes import Priority

__all__ = ["DEFAULT_GRACE", "PodVictims", "is_marked"]

log: Final = logging.getLogger("reprieve.execution")

T = TypeVar("T")
DEFAULT_GRACE: Final = 30
_CONDITION: Final = "DisruptionTarget"
_REASON: Final = "PreemptionByScheduler"
_RESUMED: Final = "preempting to accommodate a higher priority workload"
_GONE: Final = "deleted or ending already, not by this plan"
_ON_ITS_WAY: Final = "deleted or ending"
#: A refusal may pass as well: a webhook that is away, a role that is about to be written.
_AGAIN: Final = (*UNSETTLED, Forbidden, Invalid)
_STARTS_WITHIN: Final = 20 * SECOND
_MOST_EVICTED: Final = 32_768  # victims whose evicting plan is known; the oldest are dropped


def _digest(text: str) -> int:
    """Return 56 bits that stand for a uid or a name, in a third of the memory."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest())


def is_marked(pod: Json) -> bool:
    """Whether the pod's first `DisruptionTarget` is true and the scheduler's own (7.2)."""
    mark = _mark_of(pod)
    return (mark.get("status"), mark.get("reason")) == ("True", _REASON)


class PodVictims:
    """Marks and deletes pods.

    `evicted` is called with every victim that we deleted, and with its grace period in seconds.
    `seen` gives the metadata of a victim as a watch showed it last, so that it need not be read
    before it is marked: if it has changed since, the mark is a conflict. None: it has to be read.
    """

    def __init__(
        self,
        client: Client,
        fence: Fence,
        clock: Clock,
        *,
        evicted: Callable[[Preemption, Victim, int], None],
        seen: Callable[[Victim], Json | None] = lambda victim: None,
        changed: Callable[[Victim, Json], str] = lambda victim, pod: "",
        refused: Callable[[Preemption, Victim, str], None] = lambda intent, victim, why: None,
        too_long: Callable[[Victim, int], str] = lambda victim, grace: "",
        unanswered: Unanswered | None = None,
    ) -> None:
        """`changed` states why a pod as it is now is no victim any more, empty where it is.

        `refused` is called with every victim of which all tries were refused, and why. `too_long`
        states why a victim with a grace period of so many seconds is passed by, empty where it is
        not.
        """
        self._client = client
        self._clock = clock
        self._evicted = evicted
        self._seen = seen
        self._changed = changed
        self._refused = refused
        self._too_long = too_long
        self._unanswered_of = unanswered or Unanswered()
        self._writer = client.at(Priority.EVICT, fence.check, timeout=fence.request_timeout)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unanswered: set[tuple[str, str]] = set()  # deletions: plan and victim
        # Since when the right to delete seems to be missing, by plan and victim: monotonic.
        self._without_right: dict[tuple[str, str], int] = {}
        self._evicted_by: dict[int, int] = {}  # victims, and whose they were: digests of both
        # The messages for the victims of a plan, or of an adopted unit of it.
        self._messages: dict[tuple[str, str], str] = {}

    @property
    def remembers(self) -> int:
        """Of how many pods it is known which plan evicted them."""
        return len(self._evicted_by)

    def announce(self, intent: Preemption, message: str) -> None:
        """Set what the condition of a plan's victims is to state."""
        self._messages[intent.metadata.name, ""] = message

    def forget(self, intent: Preemption) -> None:
        """A plan is over."""
        name = intent.metadata.name
        self._unanswered = {each for each in self._unanswered if each[0] != name}
        self._messages = {key: text for key, text in self._messages.items() if key[0] != name}
        rights = self._without_right
        self._without_right = {key: at for key, at in rights.items() if key[0] != name}

    async def mark(self, intent: Preemption, victim: Victim) -> Marked[Json] | VictimResult:
        """Mark a pod; one that leaves already counts as deleted.

        Raises:
            Deposed: the fence is closed.
            ApiError: it could not be marked.
        """
        known, contest = self._as_seen(victim), Contest()

        async def once() -> Marked[Json] | VictimResult:
            nonlocal known
            pod, known = known or await self._read(victim), None
            if pod is None or _ends(pod):
                return VictimResult(VictimState.GONE, _GONE)
            if contest.met:
                if why := self._changed(victim, pod):
                    return VictimResult(VictimState.FAILED, why)
                pod = _by_uid(pod) if contest.lost else pod
            if not is_marked(pod):
                pod = await self._mark(pod, self._message(intent, victim))
            why = self._too_long(victim, _grace(pod))
            if why:
                await self.spare(pod)
                self._report_refused(intent, victim, why)
                return VictimResult(VictimState.FAILED, why)
            return Marked(pod)

        try:
            return await self._tried(victim, contest.of(once))
        except NotFound:
            return VictimResult(VictimState.GONE, _GONE)
        except ApiError as error:
            if self._starts_up((intent.metadata.name, victim.root.uid), error):
                raise Unreachable(str(error)) from error
            if not self._is_refusal(victim, error):
                raise
            self._report_refused(intent, victim, str(error))
            return VictimResult(VictimState.FAILED, str(error))

    async def spare(self, pod: Json | None) -> None:
        """Remove the mark, as kube-controller-manager does with one that led to nothing.

        Should that fail it does so in two minutes.

        Raises:
            Deposed: the fence is closed.
        """
        if pod is None or not is_marked(pod):
            return
        try:
            await self._mark(pod, "", status="False")
        except Deposed:
            raise
        except ApiError as failure:
            log.info(
                "the mark of %s is not removed, it is retried: %s", pod["metadata"]["name"], failure
            )
        except Exception:
            log.exception("the mark of %s is not removed, it is retried", pod["metadata"]["name"])

    async def evict(
        self, intent: Preemption, victim: Victim, pod: Json | None, *, again: bool
    ) -> VictimResult:
        """Mark and delete a pod; `pod`: as it was marked or read just now.

        A fault of ours about it is its failure, so that the others of its unit do not wait for it.

        Raises:
            Deposed: the fence is closed.
        """
        turn = self._turns.setdefault(victim.root.uid, asyncio.Lock())
        known = self._as_seen(victim) if pod is None and not again else pod
        try:
            async with turn:
                return await self._try_to_evict(intent, victim, known, again=again)
        except Deposed:
            raise
        except Exception as fault:
            log.exception("victim %s/%s is not evicted", victim.root.namespace, victim.root.name)
            return VictimResult(VictimState.FAILED, f"a fault of the operator: {fault!r}")

    async def read(self, intent: Preemption, victim: Victim, *, elsewhere: bool) -> Reading[Json]:
        """Return what a pod shows; no pod is deleted here without a mark.

        Raises:
            ApiError: it could not be read.
        """
        pod = await self._read(victim)
        if pod is None or _ends(pod):
            unmarked = pod is not None and not _mark_of(pod)
            if elsewhere or unmarked or not self._is_of(intent, victim):
                return Reading(Standing.GONE, _GONE)
            return Reading(Standing.EVICTED, _ON_ITS_WAY)
        if is_marked(pod):
            if message := _mark_of(pod).get("message"):
                self._messages.setdefault((intent.metadata.name, _unit(victim)), message)
            return Reading(Standing.MARKED, mark=pod)
        if _mark_of(pod):
            return Reading(Standing.UNMARKED, mark=pod)
        return Reading(Standing.UNTOUCHED, mark=pod)

    async def _try_to_evict(
        self, intent: Preemption, victim: Victim, known: Json | None, *, again: bool
    ) -> VictimResult:
        asked, contest = (intent.metadata.name, victim.root.uid), Contest()

        async def once() -> VictimResult:
            nonlocal known
            pod, known = known or await self._read(victim), None
            if pod is None or _ends(pod):
                return self._found_gone(intent, victim, pod)
            if contest.met:
                if why := self._changed(victim, pod):
                    return VictimResult(VictimState.FAILED, why)
                pod = _by_uid(pod) if contest.lost else pod
            if not is_marked(pod):
                pod = await self._mark(pod, self._message(intent, victim))
            # An eviction that has begun is finished: a unit's grace period is checked as it is
            # marked.
            why = "" if again or victim.unit else self._too_long(victim, _grace(pod))
            if why:
                await self.spare(pod)
                self._report_refused(intent, victim, why)
                return VictimResult(VictimState.FAILED, why)
            await self._delete(asked, _by_uid(pod) if contest.lost else pod)
            self._is_of(intent, victim)
            self._report_evicted(intent, victim, pod)
            return VictimResult(VictimState.EVICTED)

        try:
            return await self._tried(victim, contest.of(once))
        except NotFound:
            return self._found_gone(intent, victim, None)
        except ApiError as error:
            if self._starts_up(asked, error) or not self._is_refusal(victim, error):
                return VictimResult(VictimState.PENDING, str(error), away=True)
            self._report_refused(intent, victim, str(error))
            return VictimResult(VictimState.FAILED, str(error))

    async def _tried(self, victim: Victim, once: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first try that does not fail; count the others.

        Raises:
            NotFound: the pod is deleted.
            ApiError: the failure of the last try.
        """

        async def counted() -> T:
            try:
                try:
                    return await once()
                except NotFound as missing:
                    if await self._read(victim) is None:
                        raise
                    # What denies that it is there is not about it, or not the API server.
                    text = f"{missing.message}, though it can be read"
                    raise ServerError(text, code=missing.code, call=missing.call) from missing
            except ApiError as failure:
                self._unanswered_of.failed(victim.root.uid, failure)
                raise

        return await retried(counted, self._client.transport.pause, _AGAIN, soon=True)

    def _is_refusal(self, victim: Victim, error: ApiError) -> bool:
        return not is_silent(error) or self._unanswered_of.is_refused(victim.root.uid)

    def _starts_up(self, asked: tuple[str, str], error: ApiError) -> bool:
        """Whether a right seems to be missing for a short while only.

        An API server that has just been started does not know all roles yet.
        """
        if not isinstance(error, Forbidden) or error.rule is None:
            return False
        now = self._clock.monotonic()
        return now - self._without_right.setdefault(asked, now) < _STARTS_WITHIN

    async def _delete(self, asked: tuple[str, str], pod: Json) -> None:
        metadata = pod["metadata"]
        try:
            await self._writer.delete(
                PODS,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata.get("resourceVersion", ""),
            )
        except AWAY:
            self._unanswered.add(asked)
            raise

    def _found_gone(self, intent: Preemption, victim: Victim, pod: Json | None) -> VictimResult:
        """Return the state of one that leaves without a call: ours if we had requested it.

        A lost answer may have been a refusal: then another plan had requested the deletion first.
        """
        asked = (intent.metadata.name, victim.root.uid) in self._unanswered
        if not asked or not self._is_of(intent, victim):
            return VictimResult(VictimState.GONE, _GONE)
        if pod is not None:
            self._report_evicted(intent, victim, pod)
        return VictimResult(VictimState.EVICTED, _ON_ITS_WAY)

    def _is_of(self, intent: Preemption, victim: Victim) -> bool:
        """Whether a victim that leaves was evicted by this plan: the first that states so."""
        plan = _digest(intent.metadata.name)
        first = self._evicted_by.setdefault(_digest(victim.root.uid), plan)
        if len(self._evicted_by) > _MOST_EVICTED:
            del self._evicted_by[next(iter(self._evicted_by))]
        return first == plan

    def _report_evicted(self, intent: Preemption, victim: Victim, pod: Json) -> None:
        try:
            self._evicted(intent, victim, _grace(pod))
        except Exception:
            # It is evicted all the same.
            log.exception(
                "the observer of the termination of pod %s/%s failed",
                victim.root.namespace,
                victim.root.name,
            )

    def _report_refused(self, intent: Preemption, victim: Victim, why: str) -> None:
        try:
            self._refused(intent, victim, why)
        except Exception:
            log.exception(
                "the observer of the refused eviction of pod %s/%s failed",
                victim.root.namespace,
                victim.root.name,
            )

    def _message(self, intent: Preemption, victim: Victim) -> str:
        """Return what a victim reads: as others of its unit have read, if any has."""
        name = intent.metadata.name
        of_plan = self._messages.get((name, ""), _RESUMED)
        return self._messages.get((name, _unit(victim)), of_plan)

    def _as_seen(self, victim: Victim) -> Json | None:
        """Return the victim as a watch showed it, with nothing but what a mark needs."""
        metadata = self._seen(victim)
        return None if metadata is None else {"metadata": metadata, "spec": {}}

    async def _read(self, victim: Victim) -> Json | None:
        """Return the victim as it is now, None when it is deleted or another has its name."""
        try:
            pod: Json = await self._client.get(PODS, victim.root.namespace, victim.root.name, dict)
        except NotFound:
            return None
        return pod if pod["metadata"]["uid"] == victim.root.uid else None

    async def _mark(self, pod: Json, message: str, status: str = "True") -> Json:
        metadata = pod["metadata"]
        condition = {
            "type": _CONDITION,
            "status": status,
            "reason": _REASON,
            "message": message,
            "lastTransitionTime": format_instant(self._clock.wall()),
        }
        if metadata.get("generation"):
            condition["observedGeneration"] = metadata["generation"]
        change = StatusChange(
            PODS,
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            {"conditions": [condition]},
            metadata.get("resourceVersion", ""),
            PatchType.STRATEGIC,
        )
        marked: Json = await write_status(self._writer, change, dict)
        return marked


def _by_uid(pod: Json) -> Json:
    """Return a pod that is written by its uid alone, whatever its version is by then."""
    kept = {key: value for key, value in pod["metadata"].items() if key != "resourceVersion"}
    return {**pod, "metadata": kept}


def _unit(victim: Victim) -> str:
    return f"unit {victim.unit}" if victim.unit else victim.root.uid


def _mark_of(pod: Json) -> Json:
    """Return the pod's first `DisruptionTarget`, empty without one."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == _CONDITION:
            found: Json = condition
            return found
    return {}


def _ends(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _grace(pod: Json) -> int:
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE if seconds is None else int(seconds)
