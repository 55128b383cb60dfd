"""`understudy.live.clock`: waits for rewards, whatever clocks show, and the outages between."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command_line import Run, understudy
from tests.support.live.load_generator import until
from tests.support.live.local_server import serving_store
from tests.support.live.running_service import (
    Event,
    Service,
    TurnedClock,
    exported,
    policy_after,
    served,
    study_spec,
)
from tests.support.live.single_study import (
    SECOND,
    Decision,
    Outage,
    SingleStudy,
    StudyState,
    statuses,
)
from tests.support.live.temporary_stores import (
    Changes,
    Place,
    Rewarded,
    as_of_0_5_0,
    audited,
    cluster,
    database,
    decisions_in,
    place,
)
from tests.support.strategies import quick
from understudy.errors import StoreUnavailable
from understudy.live import clock as clock_module
from understudy.live.clock import Outages, RewardWait, ServiceClock

__all__ = ["cluster", "database", "place", "understudy"]  # fixtures

pytestmark = pytest.mark.plain

NANOSECONDS = 1_000_000_000
LONG_AGO, IN_70_YEARS = 1_000_000, 4_000_000_000  # seconds since 1970
DAY = 86_400
TIMES = st.integers(0, 60)


def decide(name: str) -> Event:
    return Event(id=name, action="a", propensity=0.5)


def reward(name: str) -> Event:
    return Event(id=name, reward=1.0)


def whole(name: str) -> Event:
    return Event(id=name, action="b", propensity=0.5, reward=1.0)


def made_at(decided_at: int, seq: int = 1) -> Decision:
    return Decision(seq, str(seq), 0, 0.5, None, decided_at)


@st.composite
def outages(draw: st.DrawFn) -> Outages:
    ends = sorted(draw(st.sets(TIMES, max_size=8)))
    pairs = zip(ends[::2], ends[1::2], strict=False)
    return Outages([Outage(begun, ended) for begun, ended in pairs])


def is_down(found: Outages, moment: int) -> bool:
    return any(outage.begun <= moment < outage.ended for outage in found.found)


@quick
@given(found=outages(), until=TIMES)
def test_outages_do_not_count(found: Outages, until: int) -> None:
    assert found.served(until) == sum(not is_down(found, moment) for moment in range(until))


@quick
@given(found=outages(), first=TIMES, second=TIMES, clock=TIMES, length=st.integers(1, 20))
def test_waits_end_in_the_order_of_decisions(
    found: Outages, first: int, second: int, clock: int, length: int
) -> None:
    wait = RewardWait(length, found)
    older, newer = made_at(min(first, second)), made_at(max(first, second))
    assert wait.is_over(older, clock) >= wait.is_over(newer, clock)
    known = [outage for outage in found.found if outage.begun <= clock]
    now = RewardWait(length, Outages(known))  # the clock is never before an outage begins
    assert now.is_over(older, clock) == (clock >= now.deadline(older))


@quick
@given(found=outages(), decided=TIMES, length=st.integers(1, 20), begun=TIMES, more=TIMES)
def test_a_wait_that_is_over_stays_over(
    found: Outages, decided: int, length: int, begun: int, more: int
) -> None:
    """A later outage begins when the clock of its time, by which decisions expired, is on disk."""
    clock = max([begun, *(outage.begun for outage in found.found)])
    wait, decision = RewardWait(length, found), made_at(decided)
    outage = found.next(clock, clock + more)
    later = wait if outage is None else replace(wait, outages=found + outage)
    for after in range(clock, clock + 2 * more + 2):
        assert later.is_over(decision, after) >= wait.is_over(decision, clock)


@quick
@given(
    found=outages(),
    clock=TIMES,
    action=st.integers(0, 9),
    reward=st.none() | st.floats(0, 1),
    late=st.none() | st.floats(0, 1),
)
def test_a_wait_does_not_look_at_rewards_or_actions(
    found: Outages, clock: int, action: int, reward: float | None, late: float | None
) -> None:
    wait, decision = RewardWait(9, found), made_at(3)
    other = replace(decision, action=action, reward=reward, late_reward=late, context="{}")
    assert wait.is_over(other, clock) == wait.is_over(decision, clock)


def test_a_clock_goes_on_by_elapsed_time() -> None:
    machine, elapsed = [70], [5]
    clock = ServiceClock(lambda: machine[0], lambda: elapsed[0])
    for set_to in (2_000, -2_000):
        machine[0], elapsed[0] = set_to, elapsed[0] + 1
        assert clock.now() == 70 + elapsed[0] - 5
        assert clock.ahead() == clock.now() - set_to
    clock.not_before(500)
    clock.not_before(400)
    elapsed[0] += 3
    assert clock.now() == 503


def run_at(
    path: Path, patch: pytest.MonkeyPatch, seconds: float, *events: Event, **spec: Any
) -> list[str]:
    """The statuses of events that are sent to a service which starts and ends at this time."""

    async def run() -> list[str]:
        async with served(path, **spec) as service:
            found = await service.ingest(service.study("ads"), events)
            return statuses(found)

    with patch.context() as patched:
        patched.setattr(time, "time_ns", lambda: round(seconds * NANOSECONDS))
        return asyncio.run(run())


def test_an_outage_does_not_end_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients kept the rewards for a day, and the study waits for an hour."""
    path = tmp_path / "store.db"
    assert run_at(path, monkeypatch, LONG_AGO, decide("1"), decide("2")) == ["accepted"] * 2
    assert run_at(path, monkeypatch, LONG_AGO + DAY, reward("1")) == ["accepted"]
    assert run_at(path, monkeypatch, LONG_AGO + 2 * DAY, reward("2")) == ["accepted"]
    assert [row.reward for row in decisions_in(path)] == [1.0, 1.0]
    assert exported(path) == 2


def test_a_short_outage_is_longer_than_a_short_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    spec = {"reward_wait": 1.0}
    assert run_at(path, monkeypatch, LONG_AGO, decide("1"), **spec) == ["accepted"]
    assert run_at(path, monkeypatch, LONG_AGO + 5, reward("1"), **spec) == ["accepted"]
    assert all(found.passed for found in audited(path))


def test_decisions_expire_while_the_kept_clock_is_far_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    assert run_at(path, monkeypatch, IN_70_YEARS, whole("1"), reward_wait=0.05) == ["accepted"]

    async def run() -> None:
        async with served(path, reward_wait=0.05) as service:
            study = service.study("ads")
            await service.ingest(study, [decide("2")])
            await until(lambda: study.state.expired == 1)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(run())
    (warning,) = [entry for entry in logs if "far ahead" in entry["event"]]
    assert warning["store"].startswith("2096-")
    assert warning["machine"] < warning["store"]
    assert "understudy clock --set-back" in warning["remedy"]
    with serving_store(path) as url, structlog.testing.capture_logs():
        metrics = httpx.get(f"{url}/metrics").text
    found = re.search(r"^understudy_clock_ahead_seconds (.*)$", metrics, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > IN_70_YEARS - time.time() - DAY


def test_a_jump_of_the_machine_clock_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> int:
        async with served(tmp_path / "store.db") as service:
            with monkeypatch.context() as patched:
                patched.setattr(time, "time_ns", lambda: IN_70_YEARS * NANOSECONDS)
                await service.ingest(service.study("ads"), [whole("1")])
            kept: int = await service.writer.run(service.writer.store.clock)
            return kept

    assert asyncio.run(run()) / SECOND < time.time() + DAY


async def turned(service: Service, clock: TurnedClock, seconds: float) -> None:
    """Let time pass, and wait until the writer has noticed."""
    clock.turn(seconds)
    await until(lambda: service.writer.clock.seen == clock.now())


def test_the_clock_is_written_while_decisions_wait(tmp_path: Path) -> None:
    """After a crash, only a few seconds are taken for an outage."""
    clock = TurnedClock(LONG_AGO)

    async def run() -> list[int]:
        async with served(tmp_path / "store.db", clock) as service:
            study, here = service.study("ads"), Place(service.where)
            kept = []
            with here.opened, closing(here.reader()) as reader:

                async def pass_time() -> None:
                    for _ in range(6):
                        await turned(service, clock, 1.0)
                    kept.append(reader.clock() // SECOND - LONG_AGO)

                await pass_time()
                await service.ingest(study, [decide("1")])
                await pass_time()
                await service.ingest(study, [reward("1")])
                await pass_time()
                assert reader.outages() == []
            return kept

    assert asyncio.run(run()) == [0, 11, 12]


def test_a_study_that_has_stopped_needs_no_clock(tmp_path: Path) -> None:
    """Its decisions wait for ever. It still takes their rewards, so it needs the outages."""
    clock = TurnedClock(LONG_AGO)

    async def run() -> None:
        async with served(tmp_path / "store.db", clock) as service:
            study = service.study("ads")
            await service.ingest(study, [decide("1")])
            study.fault = "it has stopped"
            for _ in range(12):
                await turned(service, clock, 1.0)
            assert service.writer.clock.kept == LONG_AGO * SECOND
            await turned(service, clock, 3_600.0)
            found = await service.ingest(study, [reward("1")])
            assert statuses(found) == ["accepted"]

    asyncio.run(run())


def test_a_pause_of_the_process_is_an_outage(tmp_path: Path) -> None:
    """It was stopped, or the machine slept: nothing could be delivered."""
    clock = TurnedClock(LONG_AGO)

    async def run() -> None:
        async with served(tmp_path / "store.db", clock, reward_wait=10.0) as service:
            study = service.study("ads")
            await service.ingest(study, [decide("1")])
            await turned(service, clock, 3_600.0)
            assert study.state.seq == 0
            due = study.next_deadline()
            assert due == (LONG_AGO + 3_600 + 15 + 10) * SECOND + 1
            for _ in range(25):
                await turned(service, clock, 1.0)
            assert study.state.seq == 0
            await turned(service, clock, 1e-6)
            await until(lambda: study.state.expired == 1)

    asyncio.run(run())


def test_what_another_writer_did_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that has expired for one server has expired for another, whose clock is behind."""
    spec = study_spec("ads")

    async def lost_and_found(first: Service, clock: TurnedClock, second: Service) -> str:
        study = await first.create(spec)
        await first.ingest(study, [decide("1")])
        clock.turn(3_601.0)
        await until(lambda: study.state.expired == 1)

        def lose_it_to_the_second() -> None:
            first.writer.store.close()
            second.open()
            fails_once = mock.Mock(side_effect=[StoreUnavailable("again"), []])
            monkeypatch.setattr(first.writer.store, "tokens", fails_once)
            raise StoreUnavailable("lost")

        with pytest.raises(StoreUnavailable):
            await first.writer.run(lose_it_to_the_second)
        await second.start()
        found = await second.ingest(second.study("ads"), [reward("1"), whole("2")])
        assert statuses(found) == ["late", "accepted"]
        await second.stop()
        await until(lambda: first.writer.store_error is None and study.state.seq == 2)
        assert study.state.policy is not None
        return study.state.policy.to_json()

    async def run() -> str:
        clocks = TurnedClock(LONG_AGO), TurnedClock(LONG_AGO + 1)
        first, second = (Service(str(tmp_path / "store.db"), one) for one in clocks)
        await first.start()
        try:
            return await lost_and_found(first, clocks[0], second)
        finally:
            await first.stop()

    monkeypatch.setattr(clock_module, "PAUSE", 10**12)  # the hour is no outage
    with structlog.testing.capture_logs():
        policy = asyncio.run(run())
    expired = decide("1").model_copy(update={"reward": 0.0})
    assert policy == policy_after(spec, [expired, whole("2")])
    assert [row.reward for row in decisions_in(tmp_path / "store.db")] == [None, 1.0]


def test_a_clock_that_goes_back_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions stay in their order, and wait as long as they may."""

    async def at(seconds: int, *events: Event, hours: int) -> list[str]:
        clock = TurnedClock(seconds)
        async with served(tmp_path / "store.db", clock) as service:
            study = service.study("ads")
            found = await service.ingest(study, events) if events else []
            if hours:
                await until(lambda: service.writer.clock.seen is not None)  # an outage is noted
                clock.turn(3_600.0 * hours)
                await until(lambda: study.state.seq == study.next_seq - 1)
            return statuses(found)

    def run(seconds: int, *events: Event, hours: int = 0) -> list[str]:
        return asyncio.run(at(seconds, *events, hours=hours))

    monkeypatch.setattr(clock_module, "PAUSE", 10**12)  # hours that the test lets pass count
    assert run(10_000, decide("0")) == ["accepted"]
    assert run(1, decide("1"), whole("2")) == ["accepted", "accepted"]
    assert run(10_000 + 3_600, reward("0")) == ["accepted"]
    assert run(5_000, reward("1")) == ["accepted"]
    assert run(10_000 + 3_601, decide("3")) == ["accepted"]
    assert run(9_000, whole("4")) == ["accepted"]
    assert run(10_000 + 7_200, whole("2")) == ["known"]
    assert run(2, reward("3"), decide("5")) == ["accepted", "accepted"]
    assert run(10_000 + 11_000, hours=2) == []
    assert run(3, reward("5")) == ["late"]  # the wait was over, and stays so
    assert exported(tmp_path / "store.db") == 6
    times = [row.decided_at // SECOND for row in decisions_in(tmp_path / "store.db")]
    assert times == [10_000, 10_000, 10_000, 13_601, 13_601, 17_200]


def test_a_new_study_knows_the_outages_before_it(tmp_path: Path) -> None:
    """Its decisions wait as long now as they would after a restart."""
    clock = TurnedClock(LONG_AGO)

    async def run() -> None:
        async with served(tmp_path / "store.db", clock) as service:
            await service.ingest(service.study("ads"), [decide("1")])
            await turned(service, clock, 100.0)
            await service.create(study_spec("new", 1.0))
            study = service.study("new")
            await service.ingest(study, [decide("1")])
            before = study.next_deadline()
            assert before == (LONG_AGO + 100 + 15 + 1) * SECOND + 1
        async with served(tmp_path / "store.db", clock) as service:
            study = service.study("new")
            await until(lambda: study.next_deadline() is not None)
            assert study.next_deadline() == before

    asyncio.run(run())


@pytest.mark.parametrize("snapshot", ["none", "newest", "damaged"])
def test_set_back(tmp_path: Path, snapshot: str) -> None:
    """Decisions keep their order, a wait that was over stays over, the others begin again."""
    one = SingleStudy(tmp_path, reward_wait=10.0)
    one.send(whole("early"), decide("over before"))
    one.wait(20.0)
    one.now = 1_000 * SECOND
    one.send(decide("rewarded"), decide("over"))
    one.wait(5.0)
    one.outage(100.0)
    one.send(reward("rewarded"), decide("over too"))
    one.wait(5.5)
    one.send(reward("over"))  # too late
    one.send(decide("waits"), decide("waits too"), whole("behind them"))
    one.wait(5.0)
    before = (one.study.state.seq, one.study.state.expired, one.policy())
    assert before[:2] == (5, 3)
    if snapshot != "none":
        one.study.save_snapshot(one.store)
    if snapshot == "damaged":
        one.save_snapshot_text(5, "{}")
    one.set_back(500.0)
    assert (one.study.state.seq, one.study.state.expired, one.policy()) == before
    for late in ("over before", "over", "over too"):
        assert statuses(one.send(reward(late))) == ["late"]
    one.wait(9.0)
    assert statuses(one.send(reward("waits"))) == ["accepted"]
    assert (one.study.state.seq, one.study.state.expired) == (6, 3)
    one.wait(1.5)
    assert (one.study.state.seq, one.study.state.expired) == (8, 4)
    one.study.save_snapshot(one.store)
    assert [found.faults for found in one.audit()] == [()]
    times = [row.decided_at / SECOND for row in one.store.decisions(1, 0, 99)]
    assert times == [1.0, 1.0, *[500.0] * 6]
    assert (one.store.clock() / SECOND, one.store.outages()) == (510.5, [])
    one.store.close()


def test_set_back_keeps_what_0_5_0_took_for_expired(tmp_path: Path) -> None:
    """It processed by a clock that it did not write; its snapshot tells. Outages are cut off."""
    one = SingleStudy(tmp_path, reward_wait=10.0)
    one.outage(600.0)
    one.outage(5.0)
    one.send(decide("over"), decide("waits"))
    one.now += 11 * SECOND
    one.process()
    assert one.study.state.expired == 2
    state = StudyState.begin(one.study.spec).after(one.store.decisions(1, 0, 1))
    snapshot = state.snapshot()
    assert snapshot is not None
    one.store.save_snapshot(1, snapshot)
    one.set_back(500.0)
    assert one.store.outages() == [Outage(SECOND, 500 * SECOND)]
    one.save_snapshot_text(1, "{}")  # a snapshot is only a cache
    one.restart()
    assert one.study.state.expired == 1
    assert statuses(one.send(reward("over"), reward("waits"))) == ["late", "accepted"]
    one.study.save_snapshot(one.store)
    assert [found.faults for found in one.audit()] == [()]
    one.store.close()


def test_the_command_sets_a_clock_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Run
) -> None:
    path = tmp_path / "store.db"
    run_at(path, monkeypatch, IN_70_YEARS, whole("1"), decide("2"))
    shown = understudy("clock", "--store", str(path))
    assert re.fullmatch(r"store    2096-\S+Z, [\d,]+ s ahead\nmachine  20\S+Z\n", shown.stdout)
    here = Place(str(path))
    with here.opened:
        here.writer()
        refused = understudy("clock", "--set-back", "--store", str(path))
        assert (refused.returncode, "another server writes" in refused.stderr) == (2, True)
    done = understudy("clock", "--set-back", "--store", str(path))
    assert done.stdout.endswith("the store's clock was set back to the machine's\n")
    assert [row.decided_at / SECOND < time.time() for row in decisions_in(path)] == [True, True]
    again = understudy("clock", "--set-back", "--store", str(path))
    assert (again.returncode, "it can only be set back" in again.stderr) == (2, True)
    missing = understudy("clock", "--set-back", "--store", str(tmp_path / "missing.db"))
    assert (missing.returncode, (tmp_path / "missing.db").exists()) == (2, False)


def test_a_store_keeps_outages_and_sets_times_back(place: Place) -> None:
    store, reader = place.writer(), place.reader()
    spec = study_spec("ads").model_dump_json()
    early, late = (store.add_study(name, spec, None, at).key for name, at in (("a", 5), ("b", 70)))
    store.add_token("ci", bytes(32), "read", 70)
    rows = [made_at(at, seq) for seq, at in enumerate((10, 60, 70), start=1)]
    store.write([Changes(early, rows, [Rewarded(2, 1.0, 80)], [Rewarded(1, 1.0, 65)])], 80)
    store.archive(late, 85)
    for outage in (Outage(20, 30), Outage(40, 60), Outage(85, 100)):
        store.write_clock(90, outage)
    assert (reader.clock(), len(reader.outages())) == (90, 3)
    store.set_back(50, {early: 2})
    store.set_back(50, {early: 2, late: 0})  # again, after a lost answer
    assert (reader.clock(), reader.outages()) == (50, [Outage(20, 30), Outage(40, 50)])
    assert (reader.closed_seq(early), reader.closed_seq(late)) == (2, 0)
    found = [(row.decided_at, row.rewarded_at) for row in reader.decisions(early, 0, 9)]
    assert found == [(10, 50), (50, 50), (50, None)]
    assert [(one.created_at, one.archived_at) for one in reader.studies()] == [(5, None), (50, 50)]
    store.write_clock(40)
    assert reader.clock() == 50  # it never goes back by itself


def test_a_store_without_the_tables_of_outages_is_read(place: Place) -> None:
    """0.5.0 wrote it, and no writer has opened it since."""
    store = place.writer()
    store.add_study("ads", study_spec("ads").model_dump_json(), None, 1)
    as_of_0_5_0(store)
    reader = place.reader()
    assert (reader.outages(), reader.closed_seq(1)) == ([], 0)
    assert [found.passed for found in audited(place.where)] == [True]
    store.open()
    store.write_clock(9, Outage(2, 5))
    assert reader.outages() == [Outage(2, 5)]
