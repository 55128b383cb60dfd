"""`understudy.live.live_study`: decisions are processed in order, once, whenever rewards come."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.live.single_study import SECOND, Event, SingleStudy, statuses
from tests.support.strategies import quick

pytestmark = pytest.mark.plain

IDS = [f"d{i}" for i in range(8)]


@contextmanager
def temporary_study(**spec: Any) -> Iterator[SingleStudy]:
    with tempfile.TemporaryDirectory() as folder:
        made = SingleStudy(Path(folder), **{"reward_wait": 10.0, **spec})
        yield made
        made.store.close()


def decision(i: int, reward: float | None = None) -> Event:
    """The i-th decision of every test: what it is depends on i alone."""
    action = "ab"[i * 7 % 3 % 2]
    return Event(id=IDS[i], action=action, propensity=0.25 + 0.05 * i, reward=reward)


def reward_of(i: int) -> float:
    return (i * 5 % 8) / 8


def in_one_piece(order: list[int]) -> str:
    with temporary_study() as one:
        for i in order:
            one.send(decision(i, reward_of(i)))
        return one.policy()


@quick
@given(
    order=st.permutations(range(6)),
    rewards=st.permutations(range(6)),
    cuts=st.lists(st.integers(1, 4), min_size=6, max_size=6),
    restarts=st.sets(st.integers(0, 11)),
    snapshot=st.booleans(),
)
def test_only_the_order_of_decisions_counts(
    order: list[int], rewards: list[int], cuts: list[int], restarts: set[int], snapshot: bool
) -> None:
    """However rewards arrive, in whatever groups, sent twice, with restarts: one state."""
    messages = [decision(i) for i in order]
    messages += [Event(id=IDS[i], reward=reward_of(i)) for i in rewards]
    with temporary_study() as two:
        rest = messages
        for step, size in enumerate(itertools.cycle(cuts)):
            group, rest = rest[:size], rest[size:]
            if not group:
                break
            assert statuses(two.send(*group)) == ["accepted"] * len(group)
            assert statuses(two.send(*group)) == ["known"] * len(group)
            if step in restarts:
                two.restart(snapshot=snapshot)
        assert two.study.state.seq == len(order)
        assert two.policy() == in_one_piece(order)
        two.study.save_snapshot(two.store)
        assert all(found.passed for found in two.audit())


def test_a_decision_is_processed_when_all_before_it_are(tmp_path: Path) -> None:
    one = SingleStudy(tmp_path, reward_wait=10.0)
    one.send(decision(0))
    one.wait(4.0)
    one.send(decision(1), decision(2, 1.0))
    one.send(Event(id=IDS[1], reward=0.5))
    assert one.study.state.seq == 0  # all wait for the first
    one.wait(6.0)
    assert one.study.state.seq == 0  # which has ten seconds, not less
    one.wait(1e-6)
    assert one.study.state.seq == 3
    assert one.study.state.expired == 1


def test_rewards_that_come_later_are_refused_and_counted_once(tmp_path: Path) -> None:
    one = SingleStudy(tmp_path, reward_wait=10.0, default_reward=0.25)
    one.send(decision(0))
    one.wait(11.0)
    before = one.policy()
    for _ in range(3):
        assert statuses(one.send(Event(id=IDS[0], reward=1.0))) == ["late"]
    assert one.study.refusals() == {"late": 1}
    assert one.policy() == before
    one.restart()
    assert one.study.refusals() == {"late": 1}
    assert statuses(one.send(Event(id=IDS[0], reward=1.0))) == ["late"]
    assert one.study.refusals() == {"late": 1}
    assert one.policy() == before == expected_of_default(0.25)
    one.study.save_snapshot(one.store)
    assert all(found.passed for found in one.audit())


def expected_of_default(default: float) -> str:
    with temporary_study() as other:
        other.send(decision(0, default))
        return other.policy()


def test_a_reward_in_time_counts_even_if_the_clock_is_at_the_last_moment(tmp_path: Path) -> None:
    one = SingleStudy(tmp_path, reward_wait=10.0)
    one.send(decision(0))
    one.wait(10.0)
    assert statuses(one.send(Event(id=IDS[0], reward=1.0))) == ["accepted"]
    assert one.study.state.expired == 0


def test_a_late_reward_that_comes_twice_before_its_decision_is_processed(tmp_path: Path) -> None:
    """It waits behind one that still has time: nothing but memory tells that it was late before."""
    one = SingleStudy(tmp_path, reward_wait=10.0)
    one.send(decision(0))
    one.now += 11 * SECOND
    process, one.process = one.process, lambda: None  # type: ignore[method-assign]
    late = Event(id=IDS[0], reward=1.0)
    assert statuses(one.send(late)) == ["late"]
    assert statuses(one.send(late, late)) == ["late", "late"]
    assert one.study.late == 1
    process()
    assert one.study.state.expired == 1
    assert all(found.passed for found in one.audit())


def test_decisions_that_come_during_an_audit_are_none_of_its_business(tmp_path: Path) -> None:
    one = SingleStudy(tmp_path)
    one.send(decision(0, 1.0))

    def meanwhile(*_: object) -> None:
        one.send(decision(1, 0.0), decision(2, 1.0))

    (found,) = one.audit(meanwhile)
    assert (found.faults, found.decisions) == ((), 1)


def audited(single: SingleStudy, settings: dict[str, Any]) -> tuple[str, ...]:
    """The faults of a store whose snapshot has other settings."""
    kept = single.store.snapshot(single.study.record.key)
    assert kept is not None
    content = json.loads(kept.policy)
    content["settings"].update(settings)
    policy = json.dumps(content, ensure_ascii=False, indent=1)
    assert (policy == kept.policy) == (not settings)
    single.store.save_snapshot(single.study.record.key, dataclasses.replace(kept, policy=policy))
    (found,) = single.audit()
    single.store.save_snapshot(single.study.record.key, kept)
    return found.faults


def test_an_audit_compares_numbers_and_not_sentences(tmp_path: Path) -> None:
    """Other versions word the theorem and its assumptions in another way."""
    single = SingleStudy(tmp_path)
    single.send(*(decision(i, reward_of(i)) for i in range(6)))
    single.study.save_snapshot(single.store)
    assert audited(single, {}) == ()
    assert audited(single, {"theorem": "in other words", "unmet": ["in other words"]}) == ()
    fault = ("the snapshot after decision 6 differs from the log",)
    for settings in ({"horizon": 7}, {"reward_range": [0, 1]}, {"reward_range": [-0.0, 1.0]}):
        assert audited(single, settings) == fault
    single.save_snapshot_text(6, "damaged")
    assert [found.faults for found in single.audit()] == [fault]


@pytest.mark.parametrize(
    ("factor", "faults", "rounded"),
    [(1.0 + 2.0**-52, 0, 1), (1.0 + 1e-10, 0, 1), (1.0 + 1e-8, 1, 0), (-1.0, 1, 0)],
)
def test_an_audit_counts_numbers_that_another_machine_rounded(
    tmp_path: Path, factor: float, faults: int, rounded: int
) -> None:
    single = SingleStudy(tmp_path)
    single.send(*(decision(i, reward_of(i)) for i in range(6)))
    single.study.save_snapshot(single.store)
    kept = single.store.snapshot(single.study.record.key)
    assert kept is not None
    content = json.loads(kept.policy)
    policy = content["policy"][0]
    policy["probability"] *= factor
    single.save_snapshot_text(6, json.dumps(content))
    (found,) = single.audit(rounded=rounded)
    assert (len(found.faults), found.passed) == (faults, not faults)
    policy["more"] = 0.5
    single.save_snapshot_text(6, json.dumps(content))
    (found,) = single.audit()
    assert len(found.faults) == 1


def test_a_snapshot_that_cannot_be_read_is_made_again(tmp_path: Path) -> None:
    one = SingleStudy(tmp_path)
    one.send(*(decision(i, reward_of(i)) for i in range(6)))
    before = one.policy()
    one.save_snapshot_text(6, '{"kind": "of another version"}')
    one.restart()
    assert one.policy() == before


def test_what_contradicts_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    one = SingleStudy(tmp_path, reward_wait=10.0)
    one.send(decision(0), decision(1, 1.0))
    q = 0.25
    wrong = [
        Event(id=IDS[0], action="b", propensity=q),
        Event(id=IDS[0], action="a", propensity=0.5),
        Event(id=IDS[1], reward=0.5),
        Event(id="unknown", reward=0.5),
    ]
    found = one.send(*wrong)
    assert statuses(found) == ["conflict", "conflict", "conflict", "unknown decision"]
    assert [outcome.difference for outcome in found] == [
        "action: 'a' is kept, 'b' was sent",
        "propensity: 0.25 is kept, 0.5 was sent",
        "reward: 1.0 is kept, 0.5 was sent",
        "",
    ]
    assert one.study.refusals() == {"conflict": 3, "unknown decision": 1}
    assert one.study.next_seq == 3
    one.restart()
    assert one.study.refusals() == {"conflict": 3, "unknown decision": 1}


def test_one_group_may_hold_a_decision_and_its_reward(tmp_path: Path) -> None:
    one = SingleStudy(tmp_path)
    events = [decision(0), decision(1), Event(id=IDS[0], reward=1.0), decision(0, 1.0)]
    assert statuses(one.send(*events)) == ["accepted", "accepted", "accepted", "known"]
    assert one.study.state.seq == 1
    (kept, _) = one.store.decisions(one.study.record.key, 0, 10)
    assert (kept.id, kept.reward) == (IDS[0], 1.0)


def test_more_may_wait_than_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is read back when its turn comes, a stretch at a time."""
    monkeypatch.setattr("understudy.live.live_study.MOST_IN_MEMORY", 2)
    monkeypatch.setattr("understudy.live.live_study.CHUNK", 3)
    one = SingleStudy(tmp_path, reward_wait=10.0)
    for i in range(8):
        one.send(decision(i))
    assert len(one.study.waiting) == 2
    for i in (7, 0, 3, 1, 2, 6, 4, 5):
        assert statuses(one.send(Event(id=IDS[i], reward=reward_of(i)))) == ["accepted"]
    assert one.study.state.seq == 8
    assert one.policy() == in_one_piece(list(range(8)))


def clicks_first(tmp_path: Path, n: int, rng: np.random.Generator) -> tuple[SingleStudy, float]:
    """A log in which a click comes at once, and no click is a time-out, hours later."""
    one = SingleStudy(tmp_path, behavior={"a": 0.5, "b": 0.5}, reward_wait=3600.0)
    earned = 0.0
    for i in range(n):
        action = "ab"[int(rng.integers(2))]
        clicked = rng.random() < 0.1
        one.send(Event(id=f"c{i}", action=action))
        if clicked:
            one.now += 1000
            one.send(Event(id=f"c{i}", reward=1.0))
        one.now += 1000
        certificate = one.study.state.study.certificate  # type: ignore[union-attr]
        assert certificate is not None
        earned = 0.1 * certificate.rounds  # every policy earns 0.1 a round
        assert certificate.lower <= earned + 1e-9
    return one, earned


def test_the_certificate_holds_when_only_clicks_come_early(tmp_path: Path) -> None:
    """While time-outs are out, nothing that was decided after them counts."""
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        one, _ = clicks_first(folder, 60, np.random.default_rng(seed))
        folded = one.study.state.seq
        assert folded == first_without_click(one)
        one.wait(3601.0)
        certificate = one.study.state.study.certificate  # type: ignore[union-attr]
        assert certificate is not None
        assert certificate.rounds == 60
        assert certificate.lower <= 6.0 <= certificate.upper
        one.store.close()


def test_the_certificate_holds_across_outages(tmp_path: Path) -> None:
    """Clicks come early, and there are outages longer than the wait.

    The same decisions are processed, in the same order, and more of them with their own rewards.
    """
    for seed in range(10):
        rng = np.random.default_rng(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        one = SingleStudy(folder, behavior={"a": 0.5, "b": 0.5}, reward_wait=10.0)
        clicked = []
        for i in range(60):
            one.send(Event(id=f"c{i}", action="ab"[int(rng.integers(2))]))
            clicks = bool(rng.random() < 0.1)
            if i % 20 == 19:
                one.outage(100.0)
            if clicks:  # a client that kept it delivers it after the outage
                assert statuses(one.send(Event(id=f"c{i}", reward=1.0))) == ["accepted"]
                clicked.append(i)
            one.wait(0.01)
            certificate = one.study.state.study.certificate  # type: ignore[union-attr]
            assert certificate is not None
            assert certificate.lower <= 0.1 * certificate.rounds + 1e-9
            assert one.study.state.seq == first_without_click(one)
        one.wait(10.1)
        rows = one.store.decisions(one.study.record.key, 0, 1_000)
        assert [row.seq - 1 for row in rows if row.reward == 1.0] == clicked
        certificate = one.study.state.study.certificate  # type: ignore[union-attr]
        assert certificate is not None
        assert (certificate.rounds, one.study.state.expired) == (60, 60 - len(clicked))
        assert certificate.lower <= 6.0 <= certificate.upper
        assert all(found.passed for found in one.audit())
        one.store.close()


def first_without_click(one: SingleStudy) -> int:
    rows = one.store.decisions(one.study.record.key, 0, 1_000)
    return next((row.seq - 1 for row in rows if row.reward is None), len(rows))


def test_folding_on_arrival_would_lie() -> None:
    """The bound of clicks alone, as if time-outs were not out, is false after a few events."""
    certificate = us.Certificate(behavior=[0.5, 0.5])
    for n in range(1, 20):
        certificate = certificate.observe(us.Feedback(action=n % 2, reward=1.0), 0.5)
        if certificate.lower > 0.1 * n:
            break
    assert certificate.rounds == 6


def test_a_canary_goes_on(tmp_path: Path) -> None:
    """While the played policy is a mixture, learning and the certificate go on, and both hold."""
    one = SingleStudy(tmp_path)
    rng = np.random.default_rng(0)
    means, production = {"a": 0.3, "b": 0.6}, {"a": 0.9, "b": 0.1}
    earned = paid = 0.0
    for i in range(1_500):
        share = 0.0 if i < 500 else (0.3 if i < 1_000 else 0.95)
        pi = dict(zip("ab", one.study.state.probabilities().tolist(), strict=True))
        played = {
            label: (1 - share) * production[label] + share * pi[label] for label in production
        }
        action = "ab"[int(rng.random() >= played["a"])]
        reward = float(rng.random() < means[action])
        earned += sum(pi[label] * means[label] for label in means)
        paid += reward
        one.send(Event(id=str(i), action=action, propensity=played[action], reward=reward))
    state = one.study.state
    assert state.study is not None
    certificate = state.study.certificate
    assert certificate is not None
    assert certificate.rounds == 1_500
    assert certificate.lower <= earned <= certificate.upper
    assert certificate.production == pytest.approx(paid)
    assert certificate.promoted
    assert state.probabilities()[1] > 0.95
