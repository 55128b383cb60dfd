"""Decisions that contradict the declared least propensity (`understudy.live.state`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.live.single_study import Event, SingleStudy, learned_parts

K = ["north", "south", "west"]
LEAST: dict[str, Any] = {"least_propensity": 0.1}
VECTORS = {**LEAST, "propensity_vectors": True}
CONTEXTS = {**LEAST, "context": {"age": "number"}, "learner": "ridge"}
WRONG, FINE = [0.05, 0.45, 0.5], [0.2, 0.4, 0.4]
BELOW, CONTRADICTS = "propensity is below the least one", "propensity contradicts the least one"
MEANS = [0.1, 0.9, 0.1]


def played(
    single: SingleStudy, n: int, *, wrong: float, q: Sequence[float] = WRONG, same: int = 0
) -> None:
    """Send decisions of which a share has propensities that the study does not allow.

    Rewards are from -1 to 1; some come never. The first contexts are the `same`.
    """
    rng, spec = np.random.default_rng(11), single.study.spec
    events: list[Event] = []
    for i in range(n):
        chances = np.array(q if rng.random() < wrong else FINE)
        index = int(rng.choice(3, p=chances))
        earned = 2.0 * float(rng.random() < MEANS[index]) - 1.0
        context = {"age": 1.0 if i < same else float(rng.normal())}
        vector = dict(zip(K, chances.tolist(), strict=True))
        events.append(
            Event(
                id=f"e{i}",
                action=K[index],
                propensity=None if spec.propensity_vectors else float(chances[index]),
                propensity_vector=vector if spec.propensity_vectors else None,
                context=context if spec.context else None,
                reward=None if i % 9 == 0 else earned,
            )
        )
        if rng.random() < 0.1:
            single.send(*events)
            events = []
    single.send(*events)
    single.wait(100.0)
    assert single.study.state.seq == n


def study(folder: Path, **spec: Any) -> SingleStudy:
    options = {"reward_range": (-1.0, 1.0), "default_reward": 0.0, "reward_wait": 5.0}
    return SingleStudy(folder, actions=K, **(options | spec))


def learned(single: SingleStudy, folder: Path) -> us.logs.Policy:
    """What `learn` makes of the exported log."""
    out, spec = folder / "log.parquet", single.study.spec
    single.export(out)
    options: dict[str, Any] = {"learner": spec.learner} if spec.learner else {}
    if spec.propensity_vectors:
        options["propensity_vector"] = "propensity_vector"
    if spec.context is not None:
        options |= {"context": list(spec.context), "warmup": single.study.state.warmup}
        options["no_unit"] = True
    return us.logs.learn(
        str(out),
        actions=K,
        time="time",
        reward_range=(-1.0, 1.0),
        least_propensity=spec.least_propensity,
        **options,
    ).policy


@pytest.mark.parametrize(
    ("spec", "wrong", "same"),
    [
        (LEAST, 1.0, 0),
        (LEAST, 0.3, 0),
        (VECTORS, 0.3, 0),
        ({**CONTEXTS, "warmup": 60}, 0.5, 0),
        ({**CONTEXTS, **VECTORS, "warmup": 60}, 0.3, 0),
        ({**CONTEXTS, "warmup": 25}, 0.9, 70),
    ],
    ids=["every", "some", "vectors", "contexts", "contexts and vectors", "longer warm-up"],
)
def test_such_rows_count_as_in_learn(
    tmp_path: Path, spec: dict[str, Any], wrong: float, same: int
) -> None:
    """Bit for bit, also after restarts, and in the audit."""
    single = study(tmp_path, **spec)
    played(single, 600, wrong=wrong, same=same)
    state, expected = single.study.state, learned(single, tmp_path)
    reason = CONTRADICTS if spec.get("propensity_vectors") else BELOW
    assert set(expected.refused) == {reason}
    if same:
        assert (state.spec.warmup, state.warmup) == (25, 100)
    for restart in (None, True, False):
        if restart is not None:
            single.restart(snapshot=restart)
        state = single.study.state
        assert state.policy is not None
        assert state.policy.refused == expected.refused
        assert state.contradictions == expected.refused[reason] > 0
        assert learned_parts(single.policy()) == learned_parts(expected.to_json())
        assert [found.passed for found in single.audit()] == [True]


def test_nothing_is_promoted(tmp_path: Path) -> None:
    """The certificate alone would: its bets do not allow for the weights of such rows."""
    single = study(tmp_path, **LEAST)
    played(single, 1_500, wrong=1.0, q=[0.01, 0.49, 0.5])
    for restart in (False, True):
        if restart:
            single.restart(snapshot=True)
        result = single.study.state.result
        assert result is not None
        assert result.certified is not None
        assert result.certified.promoted
        assert result.coverage.obstacle == "wrong least propensity"
        assert result.report.verdict_kind == "cannot tell"
        assert "create it again, with a smaller least_propensity" in result.report.said


def test_a_study_of_such_rows_alone_says_so(tmp_path: Path) -> None:
    single = study(tmp_path, **VECTORS)
    played(single, 20, wrong=1.0)
    state = single.study.state
    assert (state.seq, state.rounds, state.contradictions) == (20, 0, 20)
    assert state.result is not None
    assert state.result.coverage.obstacle == "mostly rejected"
    single.restart(snapshot=True)
    assert single.study.state.contradictions == 20


def test_a_unit_that_changes_and_contradicts_changes(tmp_path: Path) -> None:
    """The reasons and what is known of a row are those of `learn`."""
    single = study(tmp_path, **VECTORS, unit_rows=2)
    for i in range(40):
        q = dict(zip(K, WRONG if i % 3 == 0 else FINE, strict=True))
        first = Event(id=f"{i}", unit=i, action="west", propensity_vector=q, reward=1.0)
        other = Event(id=f"{i} 2", unit=i, action=K[1 if i % 5 == 0 else 2], reward=0.0)
        single.send(first, other)
    policy, state = learned(single, tmp_path), single.study.state
    assert policy.refused == {"reward is missing": 8, CONTRADICTS: 11}
    assert (state.changing, state.contradictions) == (8, 11)
    assert learned_parts(single.policy()) == learned_parts(policy.to_json())
