"""The state of a live study (`understudy.live.state`) is what `us.logs.learn` makes of its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.live.single_study import Event, SingleStudy, learned_parts
from understudy.live.state import StudyState

K = ["north", "south", "west"]
GIVEN = {"north": 0.2, "south": 0.5, "west": 0.3}


def played(single: SingleStudy, n: int, *, contexts: bool = False) -> None:
    """A log with rewards in one piece, late, or never, in groups of any size."""
    rng = np.random.default_rng(7)
    low, high = single.study.spec.reward_range
    logged = single.study.spec.propensity_source == "logged"
    sent: list[Event] = []
    for i in range(n):
        q = rng.dirichlet(np.ones(3)) if logged else np.array(list(GIVEN.values()))
        action = int(rng.choice(3, p=q))
        reward = low + (high - low) * float(rng.random() ** (1 + action))
        context: dict[str, Any] | None = None
        if contexts:
            age = None if rng.random() < 0.1 else float(rng.normal(40, 10))
            context = {"age": age, "town": "xyz"[int(rng.integers(3))]}
        one_piece = rng.random() < 0.4
        sent.append(
            Event(
                id=f"e{i}",
                action=K[action],
                propensity=float(q[action]) if logged else None,
                context=context,
                reward=reward if one_piece else None,
            )
        )
        if not one_piece and rng.random() < 0.7:
            sent.append(Event(id=f"e{i}", reward=reward))
        if rng.random() < 0.2:
            single.send(*sent)
            sent = []
            single.now += int(rng.integers(1_000_000))
    if sent:
        single.send(*sent)
    single.wait(100.0)
    assert single.study.state.seq == n


@pytest.mark.parametrize("suffix", [".parquet", ".ndjson"])
@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ({}, {}),
        ({"learner": "exp3-ix", "horizon": 500}, {"learner": "exp3-ix", "horizon": 500}),
        ({"behavior": "estimated"}, {"behavior": "estimated"}),
        ({"behavior": GIVEN, "learner": "prod"}, {"behavior": GIVEN, "learner": "prod"}),
        (
            {"reward_range": (-1.0, 3.0), "default_reward": 0.5, "confidence": 0.9},
            {"reward_range": (-1.0, 3.0), "confidence": 0.9},
        ),
        (
            {"context": {"age": "number", "town": "text"}, "warmup": 100},
            {"context": ["age", "town"], "warmup": 100},
        ),
    ],
    ids=["logged", "horizon", "estimated", "given", "range", "contexts"],
)
def test_live_equals_learn(
    tmp_path: Path, suffix: str, spec: dict[str, Any], options: dict[str, Any]
) -> None:
    single = SingleStudy(tmp_path, **{"actions": K, "reward_wait": 5.0, **spec})
    played(single, 400, contexts="context" in spec)
    out = tmp_path / f"log{suffix}"
    assert single.export(out) == 400
    found = us.logs.learn(str(out), actions=K, time="time", **options)
    assert learned_parts(found.policy.to_json()) == learned_parts(single.policy())
    single.restart(snapshot=True)
    assert learned_parts(found.policy.to_json()) == learned_parts(single.policy())


def test_a_study_goes_on_from_a_learned_policy(tmp_path: Path) -> None:
    """A snapshot that is loaded elsewhere and goes on is one log cut in two."""
    whole = SingleStudy(tmp_path, actions=K, reward_wait=5.0)
    played(whole, 400)
    out = tmp_path / "log.parquet"
    whole.export(out)
    rows = pl.read_parquet(out)
    first = us.logs.learn(rows[:150], actions=K, behavior="logged").policy
    state = StudyState.begin(whole.study.spec, first.to_json())
    rest = whole.store.decisions(whole.study.record.key, 150, 1_000)
    later = state.after(rest)
    assert (later.learned, later.rounds) == (250, 400)
    assert later.policy is not None
    assert learned_parts(later.policy.to_json()) == learned_parts(whole.policy())


def test_an_export_ends_before_what_still_waits(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, actions=K, reward_wait=5.0)
    single.send(
        Event(id="1", action="west", propensity=0.5, reward=1.0),
        Event(id="2", action="west", propensity=0.5),
        Event(id="3", action="west", propensity=0.5, reward=1.0),
    )
    out = tmp_path / "log.ndjson"
    assert single.export(out) == 1
    single.now += 5_000_001
    assert single.export(out) == 3
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [line["rewarded"] for line in lines] == [True, False, True]
    assert [line["reward"] for line in lines] == [1.0, 0.0, 1.0]


def test_contexts_that_never_change_prolong_the_warm_up(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, context={"age": "number"}, warmup=10)
    for i in range(64):
        age = 1.0 if i < 25 else float(i)
        single.send(
            Event(id=str(i), action="ab"[i % 2], propensity=0.5, reward=0.5, context={"age": age})
        )
        if i == 12:
            assert single.study.state.warmup_left == 7  # alike up to 10: then 20, then 40
    assert single.study.state.warmup == 40
    assert single.study.state.learned == 24
