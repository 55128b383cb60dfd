"""Learners of studies (`understudy.live.spec`): experts, parameters, rules, production."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.golden.compare import EXPECTED
from tests.support.live.single_study import (
    Decision,
    Event,
    SingleStudy,
    StudyState,
    learned_parts,
)
from tests.support.logs.sticky import sticky_log
from understudy.errors import InvalidArgument
from understudy.live.spec import StudySpec

pytestmark = pytest.mark.plain

RULES = 2  # the version of the rules of new studies
CONTEXTS = {"x": "number", "color": "text"}
EXPERTS = {
    "safe": "production",
    "sharp": "ridge:temperature=0.02",
    "labels": "tables",
    "plain": "prod-grid",
    "linear": "lin-prod-compact",
}
NAMED = {"name": "study", "actions": ["a", "b"]}


def event(i: int, *, context: bool = False) -> Event:
    q = (0.25, 0.75)[i % 2]
    fields: dict[str, Any] = {"id": str(i), "action": "ab"[i % 2], "propensity": q}
    if context:
        fields["context"] = {"x": float(np.sin(i)), "color": ("red", "blue")[i % 3 % 2]}
    return Event(**fields, reward=float(i % 5 == 0))


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "prod-grid"),
        ({"learner": "exp3-ix:coverage=20", "horizon": 100}, "exp3-ix:coverage=20"),
        ({"experts": {"safe": "production", "ix": "exp3-ix", "grid": "prod-grid"}}, "exp4"),
        ({"context": CONTEXTS, "warmup": 20, "learner": "exp4:features=16"}, "exp4:features=16"),
        ({"context": CONTEXTS, "warmup": 20, "experts": EXPERTS}, "exp4"),
        ({"context": CONTEXTS, "warmup": 20, "learner": "ridge:beta=0.5"}, "ridge:beta=0.5"),
    ],
)
def test_a_study_is_what_learn_makes_of_its_log(
    spec: dict[str, Any], name: str, tmp_path: Path
) -> None:
    """Also after a restart; and its audit finds the same bits."""
    single = SingleStudy(tmp_path, **spec)
    contexts = "context" in spec
    single.send(*(event(i, context=contexts) for i in range(60)))
    single.restart(snapshot=True)
    single.send(*(event(i, context=contexts) for i in range(60, 80)))
    assert single.study.fault is None
    policy = single.study.state.policy
    assert policy is not None
    assert (policy.settings.learner, policy.settings.rules) == (name, RULES)
    asked: dict[str, Any] = {"learner": spec.get("experts") or spec.get("learner")}
    if contexts:
        asked |= {"context": list(CONTEXTS), "warmup": 20}
    single.export(tmp_path / "log.parquet")
    learned = us.logs.learn(
        pl.read_parquet(tmp_path / "log.parquet"),
        actions=["a", "b"],
        horizon=spec.get("horizon"),
        **asked,
    ).policy
    assert learned_parts(learned.to_json()) == learned_parts(policy.to_json())
    single.study.save_snapshot(single.store)
    (found,) = single.audit()
    assert found.passed
    assert found.processed == 80


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"learner": "exp3-ix:speed=1"}, "no parameter of exp3-ix"),
        ({"learner": "ucb"}, "pass one of exp3"),
        ({"learner": "ridge"}, "none are named"),
        ({"context": CONTEXTS, "learner": "prod-grid"}, "it ignores contexts"),
        ({"experts": {"a": "production", "b": "ucb"}}, "pass one of exp3"),
        ({"experts": {"a": "production", "b": "prod"}, "learner": "prod"}, "pass experts, or a"),
        ({"context": CONTEXTS, "experts": {"a": "production", "b": "prod"}}, "ignores contexts"),
        ({"behavior": "estimated", "learner": "prod-grid"}, "needs the propensities"),
        (
            {"behavior": "estimated", "experts": EXPERTS},
            "experts = safe, sharp, labels, plain, lin",
        ),
        ({"experts": {"a": "production", "b": "lin-prod-compact"}}, "none are named"),
    ],
)
def test_a_learner_that_does_not_suit_the_study_is_refused_at_once(
    spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        StudySpec.of({**NAMED, **spec})
    assert words in str(caught.value)


def test_a_stored_study_keeps_the_rules_of_its_creation(tmp_path: Path) -> None:
    """Without a version it is of 0.5: another default, V by plays, and LinProd's constant 1."""
    spec = {"context": CONTEXTS, "warmup": 20}
    old = StudySpec.model_validate({**NAMED, **spec})
    new = StudySpec.of({**NAMED, **spec})
    assert (old.rules, old.wanted) == (1, "lin-prod-compact")
    assert (new.rules, new.wanted) == (RULES, "exp4")
    assert StudySpec.model_validate_json(new.model_dump_json()) == new
    learners = []
    for rules in (1, RULES):
        (folder := tmp_path / str(rules)).mkdir()
        single = SingleStudy(folder, rules=rules, learner="lin-prod-compact", **spec)
        single.send(*(event(i, context=True) for i in range(40)))
        policy = single.study.state.policy
        assert policy is not None
        assert policy.settings.rules == rules
        assert ("rules" in policy.settings.as_data()) == (rules > 1)
        learner: Any = policy.study.learner
        assert learner.curvature == (1.0 if rules == 1 else 0.7726)
        learners.append(learner.features.V)
    assert not np.array_equal(*learners)


def test_a_policy_that_follows_production_takes_its_probabilities(tmp_path: Path) -> None:
    """Without contexts frequencies stand for them, half and half here."""
    single = SingleStudy(tmp_path, experts={"safe": "production", "ix": "exp3-ix"})
    single.send(*(event(i) for i in range(10)))
    state = single.study.state
    assert state.policy is not None
    halves = state.probabilities(production={"a": 0.5, "b": 0.5})
    assert state.probabilities() == pytest.approx(halves, rel=1e-12)
    share = state.policy.shares["safe"]
    found = {q: state.probabilities(production={"a": q, "b": 1.0 - q}) for q in (0.1, 0.9)}
    assert found[0.9] - found[0.1] == pytest.approx([0.8 * share, -0.8 * share])
    for wrong in ({"a": 0.5, "b": 0.4}, {"a": 0.5, "c": 0.5}, {"a": float("nan"), "b": 1.0}):
        with pytest.raises(InvalidArgument, match="production"):
            state.probabilities(production=wrong)


def test_a_policy_with_contexts_asks_for_production(tmp_path: Path) -> None:
    experts = {"safe": "production", "ridge": "ridge"}
    single = SingleStudy(tmp_path, context=CONTEXTS, warmup=20, experts=experts)
    single.send(*(event(i, context=True) for i in range(40)))
    ask = partial(single.study.state.probabilities, {"x": 0.5, "color": None})
    with pytest.raises(InvalidArgument, match="pass production="):
        ask()
    assert ask(production={"a": 0.5, "b": 0.5}).sum() == pytest.approx(1.0)


def test_a_policy_that_follows_nothing_ignores_production(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, learner="exp3-ix")
    single.send(*(event(i) for i in range(10)))
    given = single.study.state.probabilities(production={"a": 0.9, "b": 0.1})
    assert np.array_equal(given, single.study.state.probabilities())


def test_a_policy_with_columns_of_experts_is_no_study() -> None:
    rows = pl.DataFrame(
        {"action": ["a", "b"] * 50, "reward": [0.0, 1.0] * 50, "propensity": 0.5, "mine": 0.5}
    )
    policy = us.logs.learn(rows, expert="mine").policy
    with pytest.raises(InvalidArgument, match="without columns of experts"):
        StudySpec.from_policy("study", policy, reward_wait=None, default_reward=None)


def test_a_mixture_without_contexts_goes_on_in_a_study() -> None:
    rows = pl.DataFrame({"action": ["a", "b"] * 50, "reward": [0.0, 1.0] * 50, "propensity": 0.5})
    mapping: dict[str, Any] = {"safe": "production", "sharp": "exp3-ix:coverage=20"}
    policy = us.logs.learn(rows, learner=mapping).policy
    spec = StudySpec.from_policy("study", policy, reward_wait=None, default_reward=None)
    assert (spec.learner, spec.experts) == (None, mapping)
    many = {f"{i}": f"exp3-ix:eta={(i + 1) / 40}" for i in range(33)}  # more than a study can name
    policy = us.logs.learn(rows, learner=many).policy
    spec = StudySpec.from_policy("study", policy, reward_wait=None, default_reward=None)
    assert (spec.learner, spec.experts) == (None, None)
    mapping = {**mapping, "sharp": us.exp3_ix(us.Logged(2), eta=0.5)}  # it has no name
    policy = us.logs.learn(rows, learner=mapping).policy
    spec = StudySpec.from_policy("study", policy, reward_wait=None, default_reward=None)
    assert (spec.learner, spec.experts) == (None, None)


def test_a_policy_of_rules_1_goes_on_by_them() -> None:
    """A new study has the newest, and so has its certificate."""
    policy = us.logs.Policy.load(EXPECTED / "learn" / "adaptive" / "policy.json")
    old = StudySpec.from_policy("old", policy, reward_wait=None, default_reward=None)
    new = StudySpec.of({"name": "new", "actions": list(policy.actions.labels)})
    for spec, base, rules in ((old, policy, 1), (new, None, RULES)):
        assert spec.rules == rules
        decision = Decision(1, "1", 0, 0.5, None, 1, reward=1.0, rewarded_at=1)
        state = StudyState.begin(spec, base).after([decision])
        assert state.policy is not None
        certificate = learned_parts(state.policy.to_json())["certificate"]
        assert certificate.get("rules", 1) == rules


def test_a_study_goes_on_from_a_log_with_sticky_contexts(tmp_path: Path) -> None:
    """The rows of the log are in its certificate, so they stay a reason to decide nothing.

    The groups of contexts of the log do not grow: policy.json has none, and can be loaded.
    """
    log = sticky_log(3, users=40, rows=600)
    options: dict[str, Any] = {"context": ["user", "page"], "learner": "ridge"}
    policy = us.logs.learn(log, actions=["a", "b"], **options).policy
    assert policy.sticky is not None
    assert policy.study.groups is not None
    spec = StudySpec.from_policy("more", policy, reward_wait=None, default_reward=None)
    state = StudyState.begin(spec, policy)
    for n in range(1, 4):
        context = spec.context_text({"user": float(n), "page": 0.0})
        decision = Decision(n, str(n), 0, 0.5, context, n, reward=1.0, rewarded_at=n)
        state = state.after([decision])
        assert state.result is not None
        assert state.result.obstacle == "sticky columns"
    assert state.policy is not None
    path = tmp_path / "policy.json"
    path.write_text(state.policy.to_json(), encoding="utf-8")
    saved = us.logs.Policy.load(path)
    assert saved.sticky == policy.sticky
    assert saved.study.groups is None
    assert saved.rows == policy.rows + 3
