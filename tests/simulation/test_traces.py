"""Reading traces, and bringing them to a load: nothing is left out in silence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reprieve.simulation.demand import Tenants, demand
from reprieve.simulation.readers.csv_form import read_csv
from reprieve.simulation.trace import Job, Malformed, Trace, device_time, window
from reprieve.units.errors import UsageError
from tests.simulation.building import SECOND, job, traces

WITH_EVERYTHING = """\
duration_s,arrival_s,gpus,job,model,tenant,priority,checkpoint_s,save_s,restart_s
100,5,2,one,net,team,7,60,5,30
50.5,0,1,two,,,,,,
"""


def test_columns_may_stand_in_any_order_and_empty_ones_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(WITH_EVERYTHING)
    assert read_csv(path, "t").jobs == (
        Job("two", 0, 1, int(50.5 * SECOND)),
        Job(
            "one", 5 * SECOND, 2, 100 * SECOND, "net", "team", 7, 60 * SECOND, 5 * SECOND,
            30 * SECOND,
        ),
    )  # fmt: skip


def test_lines_that_cannot_be_read_are_kept_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    lines = ["arrival_s,gpus,duration_s", "0,1,10", "x,1,10", "1,0,10", "2,1", "3,1,0", "4,1,nan"]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    trace = read_csv(path, "t")
    assert [each.id for each in trace.jobs] == ["L2"]
    assert [(each.line, each.why.split(";")[0]) for each in trace.malformed] == [
        (3, "'x' is not a number"),
        (4, "'0' is not a whole number"),
        (5, "2 cells where the header has 3"),
        (6, "duration_s '0'"),
        (7, "'nan' is not a number"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ":1: a header without arrival_s, gpus, duration_s; accepted: arrival_s"),
        (b"arrival_s,gpus,duration_s,color\n", ":1: a header with color; accepted"),
        (b"\xff\xfe", "accepted: a text file in UTF-8"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=str(path)) as refused:
        read_csv(path, "t")
    assert said in str(refused.value)


def test_bytes_that_are_no_text_cost_their_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"arrival_s,gpus,duration_s,model\n0,1,10,a\n5,1,10,caf\xe9\n9,1,10,b\n")
    trace = read_csv(path, "t")
    assert [each.id for each in trace.jobs] == ["L2", "L4"]
    assert trace.malformed == (Malformed(3, "bytes that are no UTF-8"),)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("compressed", [False, True])
def test_whether_it_is_compressed_is_told_from_the_content(
    tmp_path: Path, name: str, compressed: bool
) -> None:
    content = "arrival_s,gpus,duration_s,model\r\n0,1,10,模型\r\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if compressed else content)
    (found,) = read_csv(tmp_path / name, "t").jobs
    assert (found.model, found.duration) == ("模型", 10 * 10**9)


def test_a_trace_without_jobs_is_refused_with_what_it_has() -> None:
    unread = (Malformed(2, "2 cells where the header has 3"),)
    said = "trace t: no job in it; 1 unreadable line, the first is line 2: 2 cells"
    with pytest.raises(UsageError, match=said):
        demand(Trace("t", (), unread), Tenants(), 3, None, 1)


def some_trace(count: int = 400) -> Trace:
    return Trace("t", tuple(job(f"j{n}", n * 1_000, 1 + n % 4, 3_000, "") for n in range(count)))


@pytest.mark.parametrize("load", [0.3, 1.0, 2.5])
def test_the_load_that_is_asked_for_is_reached(load: float) -> None:
    given = demand(some_trace(), Tenants(), 16, load, 1)
    assert given.load == pytest.approx(load, rel=0.01)
    within = window(some_trace().jobs)
    assert device_time(given.jobs) / (16 * within) == pytest.approx(load, rel=0.01)
    assert [each.arrival for each in given.jobs] == sorted(each.arrival for each in given.jobs)
    assert len({each.id for each in given.jobs}) == len(given.jobs)
    assert all(each.arrival <= within for each in given.jobs)


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    tenants = Tenants(3, 1.0, {0: 1.0, 100: 1.0})
    first, again, other = (demand(some_trace(), tenants, 16, 0.5, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_without_a_load_the_trace_is_submitted_as_it_is() -> None:
    given = demand(some_trace(), Tenants(), 16, None, 1)
    assert [each.id for each in given.jobs] == [each.id for each in some_trace().jobs]
    assert given.load == given.own_load


def test_jobs_wider_than_the_cluster_are_left_out_and_counted() -> None:
    given = demand(some_trace(), Tenants(), 3, None, 1)
    assert given.too_wide == 100
    with pytest.raises(UsageError, match="no job requests at most 3 devices"):
        demand(Trace("t", (job("j", 0, 4, 1),), (Malformed(2, ""),)), Tenants(), 3, None, 1)


def test_tenants_come_by_their_weights_and_what_the_trace_says_goes_first() -> None:
    jobs = (*some_trace().jobs, job("own", 10**6, 1, 10, "team", 5))
    given = demand(Trace("t", jobs), Tenants(4, 1.0), 16, None, 1).jobs
    counts = [sum(each.tenant == f"tenant-{n}" for each in given) for n in (1, 2, 3, 4)]
    assert counts == sorted(counts, reverse=True)
    assert given[-1].tenant == "team"


def test_every_line_of_the_real_traces_is_a_job() -> None:
    read = 0
    for path in sorted(traces().glob("seed*/*.csv.gz")):
        trace = read_csv(path, path.name)
        assert not trace.malformed
        assert window(trace.jobs) > 0
        read += 1
    assert read
