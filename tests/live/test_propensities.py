"""What a study declares so that its certificate centers bets (`understudy.live.spec`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.live.single_study import (
    Decision,
    Event,
    SingleStudy,
    StudyState,
    learned_parts,
)
from understudy.errors import InvalidArgument
from understudy.live.spec import StudySpec

K = ["north", "south", "west"]
LEAST = 0.05


def chances(rng: np.random.Generator) -> dict[str, float]:
    q = LEAST + (1.0 - 3.0 * LEAST) * rng.dirichlet(np.ones(3))
    return dict(zip(K, (q / q.sum()).tolist(), strict=True))


def played(single: SingleStudy, n: int) -> us.Log:
    """A log whose rewards come at once, later or never; the same as columns."""
    rng, events = np.random.default_rng(5), []
    rows: list[tuple[int, float, float, list[float]]] = []
    vectors = single.study.spec.propensity_vectors
    for i in range(n):
        q = chances(rng)
        index = int(rng.choice(3, p=np.array(list(q.values()))))
        action, reward = K[index], float(rng.random() < 0.2 + 0.3 * index)
        here = i % 3 == 0
        own = None if vectors and i % 2 else q[action]
        events.append(
            Event(
                id=f"e{i}",
                action=action,
                propensity=own,
                propensity_vector=q if vectors else None,
                reward=reward if here else None,
            )
        )
        later = not here and i % 7 != 0
        if later:
            events.append(Event(id=f"e{i}", reward=reward))
        rows.append((index, reward if here or later else 0.0, q[action], list(q.values())))
        if i % 50 == 49:
            single.send(*events)
            events = []
    single.send(*events)
    single.wait(100.0)
    assert single.study.state.seq == n
    actions, rewards, propensities, all_q = zip(*rows, strict=True)
    return us.Log(actions, rewards, propensities, propensity_vectors=all_q if vectors else None)


@pytest.mark.parametrize(
    "declared",
    [
        {"propensity_vectors": True},
        {"least_propensity": LEAST},
        {"propensity_vectors": True, "least_propensity": LEAST},
        {"propensity_vectors": True, "reward_range": [-1.0, 1.0], "default_reward": 0.0},
        {},
    ],
    ids=["vectors", "least", "both", "range", "neither"],
)
@pytest.mark.parametrize("learner", ["prod-grid", "exp3-ix"])
def test_the_certificate_is_that_of_certify(
    tmp_path: Path, declared: dict[str, Any], learner: str
) -> None:
    """Bit for bit, also after restarts, and in the audit."""
    single = SingleStudy(tmp_path, actions=K, reward_wait=5.0, learner=learner, **declared)
    log, n = played(single, 400), 400
    log = us.Log(
        log.actions,
        single.study.spec.scale.unit(log.rewards),
        log.propensities,
        propensity_vectors=log.propensity_vectors,
    )
    behavior = us.Logged(n_actions=3, least_propensity=declared.get("least_propensity"))
    study = single.study.state.study
    assert study is not None
    made = study.learner
    _, trace = made.replay(made.init(), log)
    expected = us.certify(log, trace, behavior=behavior).certificate
    assert (expected.rules, expected.centered_rounds) == (2, n if declared else 0)
    us.save_certificate(expected, tmp_path / "certificate.json")
    saved = json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))["certificate"]
    for restart in (None, True, False):
        if restart is not None:
            single.restart(snapshot=restart)
        assert learned_parts(single.policy())["certificate"] == saved
        assert [found.passed for found in single.audit()] == [True]


def test_learn_on_the_exported_log(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, actions=K, reward_wait=5.0, least_propensity=LEAST)
    played(single, 400)
    out = tmp_path / "log.parquet"
    single.export(out)
    found = us.logs.learn(str(out), actions=K, time="time", least_propensity=LEAST)
    assert learned_parts(found.policy.to_json()) == learned_parts(single.policy())


def test_learn_on_an_exported_log_with_rounded_propensities(tmp_path: Path) -> None:
    """The vector's entry counts in both places."""
    single = SingleStudy(tmp_path, actions=K, reward_wait=5.0, propensity_vectors=True)
    rng = np.random.default_rng(6)
    for i in range(60):
        q = chances(rng)
        action = K[i % 3]
        event = Event(
            id=f"e{i}",
            action=action,
            propensity=q[action] * (1.0 + 5e-7),
            propensity_vector=q,
            reward=float(i % 2),
        )
        (first,) = single.send(event)
        (again,) = single.send(event.model_copy(update={"propensity": None}))
        assert (first.status, again.status) == ("accepted", "known")
    out = tmp_path / "log.parquet"
    single.export(out)
    options: dict[str, Any] = {"propensity_vector": "propensity_vector", "time": "time"}
    found = us.logs.learn(str(out), actions=K, **options)
    ours, theirs = (learned_parts(text) for text in (found.policy.to_json(), single.policy()))
    for part in ("state", "certificate", "curve", "tally"):
        assert ours[part] == theirs[part], part


@pytest.mark.parametrize("sets", [True, False])
def test_a_policy_of_eligible_sets_goes_on_without_centers(tmp_path: Path, *, sets: bool) -> None:
    """Decisions do not say which actions were eligible."""
    columns = {"action": K * 20, "reward": [0.0, 1.0, 0.5] * 20, "propensity": 1 / 3}
    rows = pl.DataFrame({**columns, "could": [K] * 60})
    options: dict[str, Any] = {"eligible": "could"} if sets else {}
    us.logs.learn(rows, actions=K, least_propensity=LEAST, out=tmp_path, **options)
    policy = us.logs.Policy.load(tmp_path / "policy.json")
    spec = StudySpec.from_policy("more", policy, reward_wait=None, default_reward=None)
    decision = Decision(1, "1", 0, 1 / 3, None, 1, reward=1.0, rewarded_at=1)
    state = StudyState.begin(spec, policy).after([decision])
    assert state.study is not None
    assert state.study.certificate is not None
    assert state.study.certificate.rounds == 61
    assert state.study.certificate.centered_rounds == (0 if sets else 61)


@pytest.mark.parametrize("rules", [1, 2])
def test_a_study_goes_on_from_a_policy_with_such_rows(rules: int) -> None:
    """Its rejected rows still count, and are not those of the study; by rules 1 as in 0.5.0."""
    columns = {
        "action": K * 40,
        "reward": [0.0, 1.0, 0.0] * 40,
        "propensity": [0.05, 0.5, 0.4] * 40,
    }
    policy = us.logs.learn(pl.DataFrame(columns), actions=K, least_propensity=0.1).policy
    spec = StudySpec.from_policy("more", policy, reward_wait=None, default_reward=None)
    spec = spec.model_copy(update={"rules": rules})
    begun = StudyState.begin(spec, policy.to_json())
    assert begun.result is not None
    assert (begun.result.coverage.obstacle == "wrong least propensity") == (rules == 2)
    sent = [
        Decision(i, str(i), 0, 0.05 if i % 2 else 0.2, None, 1, reward=1.0) for i in range(1, 8)
    ]
    state = begun.after(sent)
    assert (state.contradictions, state.changing) == (4, 0)
    snapshot = state.snapshot()
    assert snapshot is not None
    restored = begun.restored(snapshot, lambda _: [])
    for found in (state, restored):
        assert found.policy is not None
        assert found.policy.refused == {
            "propensity is below the least one": 44 if rules == 2 else 4
        }
        assert found.contradictions == 4


@pytest.mark.parametrize("suffix", [".parquet", ".ndjson"])
def test_an_export_has_the_vectors(tmp_path: Path, suffix: str) -> None:
    """Each as a mapping from actions to propensities, with every bit."""
    single = SingleStudy(tmp_path, actions=K, reward_wait=5.0, propensity_vectors=True)
    log = played(single, 50)
    assert log.propensity_vectors is not None
    out = tmp_path / f"log{suffix}"
    assert single.export(out) == 50
    if suffix == ".parquet":
        found = [json.loads(text) for text in pl.read_parquet(out)["propensity_vector"]]
    else:
        lines = out.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line)["propensity_vector"] for line in lines]
    expected = [dict(zip(K, row, strict=True)) for row in log.propensity_vectors.tolist()]
    assert found == expected


Q = {"north": 0.2, "south": 0.5, "west": 0.3}
VECTORS, FLOOR = {"propensity_vectors": True}, {"least_propensity": 0.1}


@pytest.mark.parametrize(
    ("spec", "fields", "field", "said"),
    [
        (VECTORS, {"propensity": 0.5}, "propensity_vector", "it is missing: send the propensities"),
        ({}, {"propensity": 0.5, "propensity_vector": Q}, "propensity_vector", "study has none"),
        (VECTORS, {"propensity_vector": {**Q, "east": 0.0}}, "propensity_vector", "'east' is unkn"),
        (VECTORS, {"propensity_vector": {**Q, "west": 0.4}}, "propensity_vector", "sums to 1.1"),
        (
            VECTORS,
            {"propensity_vector": Q, "propensity": 0.4},
            "propensity_vector",
            "gives the logged action 0.5, whose propensity is 0.4",
        ),
        (
            VECTORS,
            {"propensity_vector": {"north": 0.7, "west": 0.3}},
            "propensity_vector",
            "gives the action that was taken 0",
        ),
        (
            FLOOR | VECTORS,
            {"propensity_vector": {"north": 0.05, "south": 0.9}},
            "propensity_vector",
            "sums to 0.95",
        ),
    ],
)
def test_an_event_that_contradicts_its_study(
    spec: Mapping[str, Any], fields: Mapping[str, Any], field: str, said: str
) -> None:
    study = StudySpec.of({"name": "study", "actions": K, **spec})
    found = study.faults(Event(id="1", action="south", **fields))
    assert list(found) == [field]
    assert said in found[field]


@pytest.mark.parametrize(
    ("q", "contradicts"),
    [
        *((0.1, 0), (0.1 - 1e-9, 0), (0.8, 0), (0.8 + 1e-9, 0)),
        *((0.09, 1), (0.81, 1), (1.0, 1), (1e-9, 1)),
    ],
)
def test_propensities_at_the_declared_limits(tmp_path: Path, q: float, contradicts: int) -> None:
    """All are accepted; only those within the limits are learned from."""
    single = SingleStudy(tmp_path, actions=K, **FLOOR)
    single.send(Event(id="1", action="south", propensity=q, reward=1.0))
    state = single.study.state
    assert (state.rounds, state.contradictions) == (1 - contradicts, contradicts)


@pytest.mark.parametrize(
    "spec",
    [
        {"behavior": "estimated", "propensity_vectors": True},
        {"behavior": "estimated", "least_propensity": 0.1},
        {"behavior": Q, "propensity_vectors": True},
        {"least_propensity": 0.4},
        {"context": {"propensity_vector": "number"}, "propensity_vectors": True},
    ],
)
def test_studies_that_cannot_be(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        StudySpec.of({"name": "study", "actions": K, **spec})


def test_a_vector_is_a_part_of_its_decision(tmp_path: Path) -> None:
    """Sent again it is known; another one is a conflict, and changes nothing."""
    single = SingleStudy(tmp_path, actions=K, propensity_vectors=True)
    first = Event(id="1", action="south", propensity_vector=Q)
    assert [one.status for one in single.send(first, first)] == ["accepted", "known"]
    other = Event(id="1", action="south", propensity_vector={**Q, "north": 0.3, "west": 0.2})
    (refused,) = single.send(other)
    assert (refused.status, refused.difference) == (
        "conflict",
        "propensity_vector: another one is kept",
    )
    single.restart()
    same = Event(id="1", action="south", propensity=0.5, propensity_vector=Q)
    assert [one.status for one in single.send(same)] == ["known"]
