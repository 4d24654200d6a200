"""Many roots of one kind are read by a list, page by page, and those that are in none are gone."""

from __future__ import annotations

import pytest

from kubeworld.units.clock import VirtualClock
from reprieve.engine.idle import lifecycle_facts
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.kube.discovery import RestMapper
from reprieve.kube.transport import Request
from reprieve.planes.idle.roots import Roots
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from tests.kube.fakes import FakeAnswer, FakeWire, client_over, refusal

_ROOTS = [Reference("batch/v1", "Job", "team", f"job-{n}", Uid(f"uid-{n}")) for n in range(100)]
_GONE = {"job-0", "job-50", "job-99"}


def _page(number: int) -> FakeAnswer:
    items = [
        {"metadata": {"namespace": "team", "name": root.name, "uid": str(root.uid)}}
        for root in _ROOTS[50 * number : 50 * (number + 1)]
        if root.name not in _GONE
    ]
    token = {"continue": "more"} if number == 0 else {}
    return FakeAnswer(body={"metadata": {"resourceVersion": "7", **token}, "items": items})


@pytest.mark.parametrize("whole", [True, False])
async def test_who_is_on_no_page_is_gone_and_a_list_that_breaks_off_says_nothing(
    whole: bool,
) -> None:
    def answer(request: Request) -> FakeAnswer:
        if request.path == "/apis/batch/v1":
            entry = {"name": "jobs", "kind": "Job", "namespaced": True}
            return FakeAnswer(body={"resources": [entry]})
        if request.path != "/apis/batch/v1/jobs":
            name = request.path.rpartition("/")[2]
            return FakeAnswer(body={"metadata": {"namespace": "team", "name": name, "uid": name}})
        if not request.query.get("continue"):
            return _page(0)
        return _page(1) if whole else refusal(410, "Expired")

    clock = VirtualClock()
    client = client_over(FakeWire(answer), clock)
    roots = Roots(client, RestMapper(client, clock), LiteralSwitches(), lambda root: None)
    await roots.read_all(_ROOTS, {str(root.uid) for root in _ROOTS})
    gone = set()
    for root in _ROOTS:
        facts = roots.facts(root.uid)
        assert facts is not None, root.name
        if isinstance(facts.state, lifecycle_facts.Missing):
            gone.add(root.name)
    assert gone == (_GONE if whole else set())
