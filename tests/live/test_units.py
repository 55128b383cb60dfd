"""Units that keep their action, such as users (`understudy.live.spec`).

A decision is the first event of a unit; its reward is the sum of the rewards of the unit's first
events divided by their declared number.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.live.single_study import (
    LEARNED,
    SECOND,
    Event,
    SingleStudy,
    learned_parts,
    statuses,
)
from tests.support.live.temporary_stores import database_of
from tests.support.live.unit_stream import WAIT, K, Stream, event, small_memory
from tests.support.logs.sticky import sticky_log
from understudy.errors import InvalidArgument
from understudy.live.spec import StudySpec, refuse_units


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
    expected = stream.expected(**declared)
    assert expected["evidence"]["rounds"] == len(stream.units) > 150
    changed = sum(unit.changes for unit in stream.units.values())
    assert (changed > 0) == (changes > 0.0 and rows > 1)
    for restart in (None, True, False):
        if restart is not None:
            single.restart(snapshot=restart)
        state = single.study.state
        assert stream.certified() == expected
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
            small_memory(monkeypatch)
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
    assert list(json.loads(single.policy())["provenance"]["quarantined"].values()) == [2]
    single.restart(snapshot=True)
    assert single.study.state.changing == 2
    assert [found.passed for found in single.audit()] == [True]


def test_damage_is_found(tmp_path: Path) -> None:
    single = units_of_two(tmp_path)
    single.send(event("1", "ada", propensity=0.5, reward=1.0), event("2", "ada", reward=1.0))
    single.study.save_snapshot(single.store)
    database = database_of(single.store)
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
        ({"unit_rows": 2}, {"propensity": 0.5}, "unit", "it is missing: send the unit"),
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
    path = tmp_path / "policy.json"
    path.write_text(single.policy(), encoding="utf-8")
    policy = us.logs.Policy.load(path)
    assert json.loads(single.policy())["settings"]["columns"]["unit"] == "unit"
    with pytest.raises(InvalidArgument, match=r"columns.unit = 'unit': .* may be used once"):
        refuse_units(policy)
    with pytest.raises(InvalidArgument, match="may be used once"):
        StudySpec.from_policy("other", policy, reward_wait=None, default_reward=None)
    later = sticky_log(1, users=20, rows=60).rename({"user": "unit"})
    for judge in (us.logs.certify, us.logs.coverage):
        with pytest.raises(InvalidArgument, match=r"columns.unit = 'unit': .*export the log of"):
            judge(later, path)
    with pytest.raises(InvalidArgument, match=r"columns.unit = 'unit': .*export the log of"):
        us.logs.learn(later, resume=path)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_study_and_learn_have_the_same_bits(tmp_path: Path, rows: int) -> None:
    """The log has a row for each event, and `learn --unit-rows` makes the units."""
    rng = np.random.default_rng(4)
    single = SingleStudy(tmp_path, reward_wait=10.0, unit_rows=rows, reward_range=(-1.0, 2.0))
    users, rewards = rng.integers(90, size=400), rng.uniform(-1.0, 2.0, 400)
    actions = np.array(["a", "b"])[users % 2]
    for n, (user, action, reward) in enumerate(zip(users, actions, rewards.tolist(), strict=True)):
        unit = f"u{user}"
        single.send(Event(id=str(n), action=action, reward=reward, propensity=0.5, unit=unit))
    single.wait(60.0)
    log = pl.DataFrame({"user": users, "action": actions, "reward": rewards, "propensity": 0.5})
    learned = us.logs.learn(
        log, unit="user", unit_rows=rows, actions=["a", "b"], reward_range=(-1.0, 2.0)
    )
    assert learned.policy.rows == len(set(users.tolist()))
    found = json.loads(learned.policy.to_json())
    assert learned_parts(single.policy()) == {name: found[name] for name in LEARNED}


def test_without_units_a_certificate_is_false() -> None:
    """Users keep their action, whose rewards are alike; each log has 40 users of 50 decisions."""
    users, rows, logs = 40, 50, 60
    behavior = us.Logged(n_actions=2, least_propensity=0.5)
    promoted = np.zeros(2)
    for seed in range(logs):
        rng = np.random.default_rng(seed)
        rates, kept = rng.random(users), rng.integers(0, 2, users)
        who = rng.permutation(np.repeat(np.arange(users), rows))
        rewards = (rng.random(users * rows) < rates[who]).astype(float)
        first = np.unique(who, return_index=True)[1]
        order = who[np.sort(first)]
        means = np.bincount(who, rewards) / rows
        of_rows, of_units = (kept[who], rewards), (kept[order], means[order])
        for i, (actions, earned) in enumerate((of_rows, of_units)):
            log = us.Log(actions, earned, np.full(len(actions), 0.5))
            learner = us.exp3_ix(behavior, horizon=len(log))
            trace = learner.replay(learner.init(), log)[1]
            promoted[i] += bool(us.Certificate(behavior).observe(log, trace).promoted)
    assert promoted[0] > 0.2 * logs  # where 5 % are allowed
    assert promoted[1] <= 0.05 * logs
