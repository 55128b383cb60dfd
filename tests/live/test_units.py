"""Units that keep their action, such as users (`understudy.live.ingest`, `understudy.live.state`).

A decision is the first event of a unit; its reward is the sum of the rewards of the unit's first
events divided by their declared number.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.live.single_study import SECOND, Event, SingleStudy, learned_parts, statuses
from understudy.errors import InvalidArgument
from understudy.live import live_study
from understudy.live import spec as spec_module
from understudy.live.spec import StudySpec, refuse_units
from understudy.live.state import CHANGES_ACTION
from understudy.logs.policy import from_text
from understudy.logs.runs.study import Study
from understudy.logs.validate import Rejected
from understudy.snapshots import as_data

K = ["a", "b", "c"]
Q = np.array([0.5, 0.3, 0.2])
WAIT = 50.0


@dataclass
class Unit:
    """What a unit does, and what of it counts."""

    action: int
    rewards: list[float] = field(default_factory=list)
    changes: bool = False


class Stream:
    """Units whose events come in any order, with rewards at once, later or never.

    It knows the rules in its own words: which events count, and what they are worth.
    """

    def __init__(self, single: SingleStudy, rows: int, *, changes: float = 0.0) -> None:
        self.single, self.rows, self.changes = single, rows, changes
        self.rng = np.random.default_rng(3)
        self.units: dict[str, Unit] = {}
        self.rewards: list[Event] = []  # for the group after the next one
        self.later = self.most_in_memory = 0

    def play(self, events: int) -> None:
        waiting: list[Event] = []
        for i in range(events):
            fresh = not self.units or self.rng.random() < 0.4
            name = f"u{len(self.units)}" if fresh else str(self.rng.choice(list(self.units)[-8:]))
            waiting += self._event(i, name)
            if self.rng.random() < 0.1:
                self.single.send(*waiting)
                waiting = self.rewards
                self.rewards = []
                self.most_in_memory = max(self.most_in_memory, len(self.single.study.by_id))
                if self.rng.random() < 0.3:
                    self.single.send(*waiting)
                    waiting = []
                    self.single.wait(WAIT + 1.0)
                    self._close()
        self.single.send(*waiting, *self.rewards)
        self.single.wait(WAIT + 1.0)
        self._close()
        assert self.single.study.state.seq == len(self.units)

    def _close(self) -> None:
        """Every wait is over: no more events of these units count."""
        for unit in self.units.values():
            unit.rewards += [0.0] * (self.rows - len(unit.rewards))

    def _event(self, i: int, name: str) -> list[Event]:
        first = name not in self.units
        unit = self.units.setdefault(name, Unit(int(self.rng.choice(3, p=Q))))
        counts, action = len(unit.rewards) < self.rows, unit.action
        if not first and self.rng.random() < self.changes:
            action = (action + 1) % 3
            unit.changes |= counts
        reward, how = float(self.rng.random() < 0.2 + 0.3 * unit.action), self.rng.random()
        if counts:
            unit.rewards.append(reward if how < 0.8 else 0.25)
        self.later += not counts
        stated: dict[str, Any] = {"action": K[action], "unit": name}
        if first or self.rng.random() < 0.5:
            stated["propensity"] = float(Q[action])
        if how < 0.4:
            return [Event(id=f"e{i}", reward=reward, **stated)]
        if how < 0.8:
            self.rewards.append(Event(id=f"e{i}", reward=reward))
        return [Event(id=f"e{i}", **stated)]

    def certificate(self, **declared: Any) -> us.Certificate:
        """That of the log of units, through the fold of logs."""
        units = list(self.units.values())
        rewards = [min(1.0, math.fsum(unit.rewards) / self.rows) for unit in units]
        valid = np.array([not unit.changes for unit in units])
        actions = np.array([unit.action for unit in units])
        log = us.Log(actions[valid], np.array(rewards)[valid], Q[actions[valid]])
        study = self.single.study.state.study
        assert study is not None
        empty = Study.begin(study.learner, us.Logged(n_actions=3, **declared), 0.95, rules=2)
        gone = actions[~valid]
        n = len(gone)
        rejected = Rejected(valid, gone, np.ones(n), np.zeros(n, dtype=bool), Q[gone])
        found = empty.after(log, rejected if n else None).certificate
        assert found is not None
        return found


@pytest.mark.parametrize("changes", [0.0, 0.05])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("declared", [{}, {"least_propensity": 0.1}], ids=["plain", "least"])
def test_a_unit_is_one_decision(
    tmp_path: Path, rows: int, changes: float, declared: dict[str, Any]
) -> None:
    """Bit for bit what the log of units says; also after restarts, and in the audit."""
    single = SingleStudy(
        tmp_path,
        actions=K,
        reward_wait=WAIT,
        unit_rows=rows,
        default_reward=0.25,
        learner="prod-grid",
        **declared,
    )
    stream = Stream(single, rows, changes=changes)
    stream.play(600)
    expected = stream.certificate(**declared)
    assert expected.rounds == len(stream.units) > 150
    changed = sum(unit.changes for unit in stream.units.values())
    assert (changed > 0) == (changes > 0.0 and rows > 1)
    for restart in (None, True, False):
        if restart is not None:
            single.restart(snapshot=restart)
        state = single.study.state
        assert state.study is not None
        assert as_data(state.study.certificate, "") == as_data(expected, "")
        assert (state.changing, single.study.later) == (changed, stream.later)
        assert (single.study.other > 0) == (changes > 0.0)
        assert [found.passed for found in single.audit()] == [True]


@pytest.mark.parametrize("changes", [0.0, 0.05])
def test_the_exported_log_has_a_row_for_each_unit(tmp_path: Path, changes: float) -> None:
    """`understudy learn` learns the same from it, and rejects the units that change."""
    single = SingleStudy(
        tmp_path, actions=K, reward_wait=WAIT, unit_rows=3, default_reward=0.25, learner="exp3-ix"
    )
    stream = Stream(single, 3, changes=changes)
    stream.play(300)
    out = tmp_path / "log.parquet"
    assert single.export(out) == len(stream.units)
    found = us.logs.learn(
        str(out), actions=K, time="time", learner="exp3-ix", behavior="logged"
    ).policy
    assert learned_parts(found.to_json()) == learned_parts(single.policy())
    assert sum(found.refused.values()) == single.study.state.changing


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units that do not fit are read back from the store, and are the same."""
    streams = []
    for name in ("all", "few"):
        (tmp_path / name).mkdir()
        if name == "few":
            monkeypatch.setattr(live_study, "MOST_IN_MEMORY", 7)
            monkeypatch.setattr(spec_module, "MOST_VALUES", 8)  # two units are read at a time
        single = SingleStudy(tmp_path / name, actions=K, reward_wait=WAIT, unit_rows=4)
        stream = Stream(single, 4, changes=0.02)
        stream.play(300)
        streams.append(single.policy())
        assert (stream.most_in_memory <= 8) == (name == "few")
        assert single.study.later == stream.later
        assert [found.passed for found in single.audit()] == [True]
    assert streams[0] == streams[1]


def units_of_two(tmp_path: Path, **spec: Any) -> SingleStudy:
    return SingleStudy(tmp_path, actions=K, reward_wait=10.0, unit_rows=2, **spec)


def event(name: str, unit: str, action: str = "a", **fields: Any) -> Event:
    return Event(id=name, unit=unit, action=action, **fields)


def test_a_unit_waits_for_the_rewards_of_its_events(tmp_path: Path) -> None:
    single = units_of_two(tmp_path)
    single.send(event("1", "ada", propensity=0.5, reward=1.0))
    assert single.study.state.seq == 0
    single.send(event("2", "ada"))
    assert single.study.state.seq == 0
    single.send(Event(id="2", reward=0.5))
    assert single.study.state.seq == 1
    (decision,) = single.store.decisions(1, 0, 9)
    assert [one.place for one in (decision, *decision.events)] == [1, 2]
    study = single.study.state.study
    assert study is not None
    assert study.certificate is not None
    assert study.certificate.production == 0.75


def test_the_wait_is_that_of_the_first_event(tmp_path: Path) -> None:
    """An event that comes after it is acknowledged, and does not count; nor does its reward."""
    single = units_of_two(tmp_path, default_reward=0.5)
    single.send(event("1", "ada", propensity=0.5, reward=1.0))
    assert single.study.expires_between(single.now, single.now + 11 * SECOND)
    single.wait(6.0)
    single.send(event("2", "ada"))
    single.wait(6.0)
    state = single.study.state
    assert (state.seq, state.expired) == (1, 1)
    assert statuses(single.send(Event(id="2", reward=0.0))) == ["late"]
    said = single.send(event("3", "ada"), event("4", "ada", "b"), Event(id="3", reward=0.0))
    assert statuses(said) == ["accepted"] * 3
    assert statuses(single.send(event("3", "ada"), Event(id="3", reward=0.0))) == ["known"] * 2
    study = single.study
    assert (study.late, study.later, study.other, study.known) == (1, 2, 1, 2)
    assert study.state.study is not None
    assert study.state.study.certificate is not None
    assert study.state.study.certificate.production == 0.75  # (1 + 0.5) / 2
    single.restart()
    assert (single.study.late, single.study.later, single.study.other) == (1, 2, 1)


def test_the_first_event_says_all(tmp_path: Path) -> None:
    single = units_of_two(tmp_path, context={"age": "number"})
    (refused,) = single.send(event("1", "ada", propensity=0.5))
    assert (refused.status, refused.difference) == (
        "incomplete",
        'context: send {"age": …}, with null for what is missing',
    )
    (refused,) = single.send(event("1", "ada", context={"age": 3.0}))
    assert refused.status == "incomplete"
    assert refused.difference.startswith("propensity: it is missing")
    assert single.study.refusals() == {"incomplete": 2}
    said = single.send(event("1", "ada", propensity=0.5, context={"age": 3.0}), event("2", "ada"))
    assert statuses(said) == ["accepted", "accepted"]


def test_events_that_contradict_what_is_known(tmp_path: Path) -> None:
    single = units_of_two(tmp_path)
    single.send(
        event("1", "ada", propensity=0.5), event("2", "ada"), event("3", "bob", propensity=1)
    )
    for restarted in (False, True):
        if restarted:
            single.restart()
        said = single.send(
            event("2", "bob"), event("2", "ada", "b"), event("1", "ada", propensity=0.4)
        )
        assert [(one.status, one.difference.partition(":")[0]) for one in said] == [
            ("conflict", "unit"),
            ("conflict", "action"),
            ("conflict", "propensity"),
        ]
    again = single.send(event("2", "ada"), event("2", "ada", propensity=0.5))
    assert statuses(again) == ["known"] * 2


@pytest.mark.parametrize("unit", [7, "7"])
def test_a_whole_number_is_a_unit_too(tmp_path: Path, unit: int | str) -> None:
    single = units_of_two(tmp_path)
    single.send(Event(id="1", unit=7, action="a", propensity=0.5, reward=1.0))
    single.send(Event(id="2", unit=unit, action="a", reward=1.0))
    assert single.study.state.seq == 1


def test_an_archived_study_takes_events_of_units_that_wait(tmp_path: Path) -> None:
    single = units_of_two(tmp_path)
    single.send(event("1", "ada", propensity=0.5, reward=1.0))
    single.store.archive(single.study.record.key, single.now)
    single.restart()
    said = single.send(event("2", "bob", propensity=0.5), event("3", "ada", reward=1.0))
    assert statuses(said) == ["archived", "accepted"]
    assert single.study.state.seq == 1


def test_a_unit_that_changes_counts_as_unknown(tmp_path: Path) -> None:
    """In the warm-up of contexts too, where it prepares nothing."""
    single = units_of_two(tmp_path, context={"age": "number"}, warmup=3)
    for i in range(9):
        first = event(f"{i}", f"u{i}", propensity=0.5, context={"age": float(i)}, reward=1.0)
        single.send(first, event(f"{i}b", f"u{i}", "ab"[i in {1, 6}], reward=1.0))
    state = single.study.state
    assert (state.seq, state.changing, state.warmup, state.learned) == (9, 2, 3, 4)
    assert state.study is not None
    assert state.study.certificate is not None
    assert state.study.certificate.rounds == 5
    assert from_text(single.policy()).refused == {CHANGES_ACTION: 2}
    single.restart(snapshot=True)
    assert single.study.state.changing == 2
    assert [found.passed for found in single.audit()] == [True]


def test_damage_is_found(tmp_path: Path) -> None:
    single = units_of_two(tmp_path)
    single.send(event("1", "ada", propensity=0.5, reward=1.0), event("2", "ada", reward=1.0))
    single.study.save_snapshot(single.store)
    database = single.store._database
    for change, fault in {
        "place = 3": "event 2 of the unit of decision 1 is missing, or one too many",
        "place = 2, decided_at = 0": "came when it did not wait",
        "decided_at = 1000000, rewarded_at = 99000000": "was rewarded when it did not wait",
    }.items():
        database.change(f"UPDATE decisions SET {change} WHERE seq = -1")
        (found,) = single.audit()
        assert fault in found.faults[0]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"unit_rows": 2, "reward_range": [1.0, 5.0]}, "pass a reward_range that contains 0"),
        (
            {"unit_rows": 2, "context": {"unit": "text"}},
            "an exported log has a column of this name",
        ),
    ],
)
def test_studies_that_cannot_be(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        StudySpec.of({"name": "study", "actions": K, **spec})


@pytest.mark.parametrize(
    ("spec", "fields", "field", "said"),
    [
        ({}, {"unit": "ada", "propensity": 0.5}, "unit", "this study has no units: leave it out"),
        ({"unit_rows": 2}, {"propensity": 0.5}, "unit", "it is missing: send whom"),
        ({"unit_rows": 2}, {"unit": 1, "context": {"x": 1.0}}, "context", "has no contexts"),
    ],
)
def test_an_event_that_does_not_fit(
    spec: dict[str, Any], fields: dict[str, Any], field: str, said: str
) -> None:
    study = StudySpec.of({"name": "study", "actions": K, **spec})
    found = study.faults(Event(id="1", action="a", **fields))
    assert list(found) == [field]
    assert said in found[field]


def test_a_policy_of_units_is_not_continued(tmp_path: Path) -> None:
    """A unit may be used once, and policy.json does not name those that it was learned from."""
    single = units_of_two(tmp_path)
    single.send(event("1", "ada", propensity=0.5))
    single.wait(11.0)
    policy = from_text(single.policy())
    assert json.loads(single.policy())["settings"]["units"] is True
    with pytest.raises(InvalidArgument, match="may be used once"):
        refuse_units(policy)
    with pytest.raises(InvalidArgument, match="may be used once"):
        StudySpec.from_policy("other", policy, reward_wait=None, default_reward=None)
