"""Learners and experts of the user's own: by name, as values, as columns of the log."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import understudy as us
from tests.support.logs.log_files import LABELS, K, as_log, make_rows, write
from tests.support.refusals import assert_refused
from understudy.learners import Model, Outside
from understudy.logs import Policy, certify, coverage, learn

pytestmark = pytest.mark.plain

Array = NDArray[np.float64]

RULES = 2  # the version of the rules of new policies

TEXTS = tuple(sorted(LABELS))
LOGGED = us.Logged(K)
GUESS = np.array([0.1, 0.2, 0.6, 0.1])  # a model that ignores contexts, in the order of TEXTS
ROWS = make_rows(400).with_columns(
    mine=pl.col("action").replace_strict(dict(zip(TEXTS, GUESS, strict=True)))
)
CONTEXTS = make_rows(400, context=True)
LATER_RARE = CONTEXTS.with_columns(
    propensity=pl.when(pl.int_range(pl.len()) == 300).then(0.001).otherwise("propensity")
)
NAMES = ("x", "color")


class Always:
    """A model with the same probabilities for every context."""

    def predict_proba(self, contexts: Array) -> Array:
        return np.tile(GUESS, (len(contexts), 1))


def replayed(learner: Any, rows: pl.DataFrame) -> Any:
    """The state after a log with its columns of experts."""
    log = as_log(rows, TEXTS)
    columns = [rows[name].to_numpy() for name in learner.spec.columns]
    experts = np.stack(columns, axis=1) if columns else None
    whole = us.Log(log.actions, log.rewards, log.propensities, experts=experts)
    return learner.replay(learner.init(), whole)[0]


@pytest.mark.parametrize(
    ("text", "learner"),
    [
        ("exp3-ix:coverage=20", us.exp3_ix(LOGGED, coverage=20.0, horizon=400)),
        ("exp3-ix:eta=0.1,gamma=0.2", us.exp3_ix(LOGGED, eta=0.1, gamma=0.2, horizon=400)),
        ("coverage-adaptive:multiplier=2", us.coverage_adaptive(LOGGED, multiplier=2, horizon=400)),
        ("prod-grid:production=0.25", us.prod_grid(LOGGED, production=0.25)),
    ],
)
def test_parameters_of_a_name_are_those_of_the_recipe(text: str, learner: Any) -> None:
    policy = learn(ROWS, learner=text, horizon=400, actions=LABELS).policy
    known, shares = learner.known_at(replayed(learner, ROWS), None)
    seen = policy.study.sums.counts / len(ROWS)
    assert np.array_equal(policy.average, known[0] + shares.sum() * seen)
    assert policy.settings.learner == text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("exp3-ix:speed=3", "no parameter of exp3-ix, which has eta, gamma, coverage"),
        ("exp3-ix:coverage=much", "no finite number; pass coverage=NUMBER"),
        ("exp3-ix:coverage=inf", "no finite number"),
        ("exp3-ix:coverage", "coverage has no value"),
        ("exp3-ix:eta=1,eta=2", "eta is there twice"),
        ("ridge:features=2.5", "no whole number"),
        ("ridge:features=-4", "no whole number"),
        ("ridge:features=1e9", "no whole number"),
        ("ridge:features=" + "9" * 20, "no whole number"),
        ({}, "there is no expert in it"),
        ("ucb", "pass one of exp3, exp3-ix"),
        (3, "pass a learner"),
        ({"a": "ucb", "b": "production"}, "pass one of exp3"),
        ({"a": 3, "b": "production"}, "pass a learner"),
        ({"a": Outside("mine"), "b": "production"}, "pass expert='mine'"),
        ({"a": "prod-grid"}, "pass at least two"),
        ({1: "production", 2: "prod-grid"}, "learner = 1: it is no name of an expert"),
        ({"": "production", "b": "prod-grid"}, "it is no name of an expert"),
        ({"\ud800": "production", "b": "prod-grid"}, "it is no name of an expert"),
        (us.exp3_ix([0.5, 0.5]), "it has 2 actions, and the log 4; make it for 4 actions"),
        (us.ridge(n_actions=K, dimension=3), "it learns from contexts, and none are named"),
        (us.exp4(LOGGED, {"p": "production", "m": Outside("m")}), "it follows the columns m"),
    ],
)
def test_a_learner_that_does_not_fit_is_refused_with_those_that_do(wrong: Any, words: str) -> None:
    with pytest.raises(us.errors.InvalidArgument) as caught:
        learn(ROWS, learner=wrong, actions=LABELS)
    assert words in str(caught.value)


class Halves:
    def probabilities(self, _: Array) -> Array:
        return np.full(K, 1 / K)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (us.ridge(n_actions=K, dimension=2), "learner = 'own': it takes features (2,)"),
        ({"p": "production", "m": Model(Halves(), K, 2)}, "learner = 'm': it takes features (2,)"),
        ({"p": "production", "m": Model(Halves(), 2, 3)}, "learner = 'm': it has 2 actions"),
        ({"p": "production", "g": "prod-grid"}, "add an expert that uses them, such as ridge"),
        ("exp3-ix", "it ignores contexts; pass exp4, ridge"),
    ],
)
def test_a_learner_that_does_not_fit_contexts_says_how_they_are_encoded(
    wrong: Any, words: str
) -> None:
    with pytest.raises(us.errors.InvalidArgument) as caught:
        learn(CONTEXTS, learner=wrong, context=NAMES, actions=LABELS)
    assert words in str(caught.value)
    if "features" in words:
        names = "4 features (1, x, color = red, color = blue)"
        assert f"these contexts are encoded as {names}" in str(caught.value)
        assert "make it for 4 features, or pass one of exp4" in str(caught.value)


def test_columns_without_propensities_are_to_be_left_out() -> None:
    rows = ROWS.drop("propensity").with_columns(mine=0.25)
    with pytest.raises(us.errors.InvalidArgument, match="leave out the columns of experts"):
        learn(rows, learner="exp3-ix-unknown", expert="mine", actions=LABELS)


def test_a_learner_that_needs_propensities_names_those_that_do_not() -> None:
    bare, given = ROWS.drop("propensity"), dict.fromkeys(LABELS, 0.25)
    for wrong in (us.exp3_ix(LOGGED), us.prod_grid(LOGGED)):
        ask = partial(learn, bare, learner=wrong, actions=LABELS)
        assert_refused(ask, "learner", "pass one of exp3-ix-unknown")
        assert_refused(partial(ask, behavior=given), "learner", "the log has none")
    assert_refused(
        partial(learn, CONTEXTS, learner=us.exp3_ix(LOGGED), context=NAMES, actions=LABELS),
        "learner",
        "it ignores contexts; pass exp4, ridge, tables, lin-prod-compact",
    )


def test_a_learner_of_the_users_own_is_replayed() -> None:
    mine = us.exp3_ix(LOGGED, eta=0.3, gamma=0.3)
    policy = learn(ROWS, learner=mine, actions=LABELS).policy
    assert np.array_equal(policy.average, mine.policy(replayed(mine, ROWS)))
    assert (policy.settings.learner, policy.settings.theorem) == ("own", "none")


def test_experts_by_name_are_the_mixture_of_their_learners() -> None:
    named = {"safe": "production", "ix": "exp3-ix:eta=0.2", "own": us.exp3_ix(LOGGED, eta=0.4)}
    policy = learn(ROWS, learner=named, actions=LABELS).policy
    ix = us.exp3_ix(LOGGED, eta=0.2)
    made = us.exp4(LOGGED, {"safe": "production", "ix": ix, "own": us.exp3_ix(LOGGED, eta=0.4)})
    state = replayed(made, ROWS)
    assert policy.shares == made.shares(state)
    assert policy.settings.learner == "exp4"


def test_columns_are_experts_beside_production_and_the_learner(tmp_path: Path) -> None:
    """Also for a log in two parts, and after policy.json was written and read."""
    made = us.exp4(
        LOGGED,
        {"production": "production", "mine": Outside("mine"), "prod-grid": us.prod_grid(LOGGED)},
    )
    state = replayed(made, ROWS)
    whole = learn(ROWS, expert="mine", actions=LABELS).policy
    assert whole.shares == made.shares(state)
    out = tmp_path / "out"
    first = write(tmp_path / "a.csv", ROWS[:150])
    learn(first, expert="mine", actions=LABELS, out=out)
    path = out / "policy.json"
    assert json.loads(path.read_text(encoding="utf-8"))["settings"]["columns"]["experts"] == [
        "mine"
    ]
    second = learn(write(tmp_path / "b.ndjson", ROWS[150:]), resume=path).policy
    assert np.array_equal(second.average, whole.average)
    other = partial(learn, ROWS[150:], resume=path, expert="yours")
    assert_refused(other, "expert", "was learned with")


def test_a_resumed_run_may_name_the_learner_as_the_first_run_did(tmp_path: Path) -> None:
    """By the name or the names that were given, or exp4 for all mixtures; no other one."""
    names = {"safe": "production", "rates": "prod-grid"}
    rows = {"a": ROWS[:150], "b": ROWS[150:]}
    first, second = (write(tmp_path / f"{name}.csv", part) for name, part in rows.items())
    cases: tuple[tuple[dict[str, Any], tuple[Any, ...], str], ...] = (
        ({"learner": "prod", "expert": "mine"}, ("prod", "exp4"), "'prod'"),
        ({"learner": names}, (names, "exp4"), "{'safe': 'production'"),
        ({"learner": names, "expert": "mine"}, (names, "exp4"), "{'safe': 'production'"),
        ({"learner": "exp3-ix:eta=0.2"}, ("exp3-ix:eta=0.2",), "'exp3-ix"),
    )
    for i, (asked, same, before) in enumerate(cases):
        out = tmp_path / f"{i}"
        learn(first, actions=LABELS, out=out, **asked)
        go_on = partial(learn, second, resume=out / "policy.json")
        for learner in same:
            assert go_on(learner=learner).policy.study.rounds == len(ROWS)
        for other in ("prod-grid", {**names, "safe": "prod"}):
            assert_refused(partial(go_on, learner=other), "learner", f"learned with {before}")
        for own in (us.prod_grid(LOGGED), {"mine": us.prod_grid(LOGGED)}):
            assert_refused(partial(go_on, learner=own), "learner", "leave it out")


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pl.lit(1.0), True),
        (pl.col("propensity"), False),
        (pl.lit(0.25), False),
        (pl.when(pl.col("action") == LABELS[0]).then(1.0).otherwise(0.0), False),
        (pl.lit(0.0), False),
    ],
)
def test_an_expert_column_that_is_no_policy_is_named(column: pl.Expr, named: bool) -> None:
    """π/q has mean 1 if π is a policy: a column of ones, say, would earn too much."""
    result = learn(ROWS.with_columns(mine=column), expert="mine", actions=LABELS)
    assert any("column mine is no policy" in line for line in result.report.warnings) == named
    if named:
        assert not any(
            "is no policy" in line for line in learn(ROWS, actions=LABELS).report.warnings
        )


def test_the_report_names_the_experts_as_the_user_did() -> None:
    named = {"safe": "production", "own": us.exp3_ix(LOGGED, eta=0.4)}
    facts = dict(learn(ROWS, learner=named, actions=LABELS).report.facts)
    assert facts["Learner"] == "exp4 of safe: production; own: own"
    facts = dict(learn(ROWS, learner="prod", expert="mine", actions=LABELS).report.facts)
    assert facts["Learner"] == "exp4 of prod"


def test_a_learner_that_follows_the_columns_already_is_not_mixed_again() -> None:
    made = us.exp4(LOGGED, {"production": "production", "mine": Outside("mine")})
    policy = learn(ROWS, learner=made, expert=["mine"], actions=LABELS).policy
    assert list(policy.shares) == list(made.names)


def test_certificates_of_a_policy_with_expert_columns_need_the_columns(tmp_path: Path) -> None:
    out = tmp_path / "out"
    learned = learn(ROWS[:200], expert="mine", actions=LABELS, out=out).policy
    later = ROWS[200:]
    study, log = learned.study, as_log(later, TEXTS)
    learner: Any = study.learner
    shares = learned.shares
    grid = learner.experts[2].policy(study.state.experts[2])
    played = (
        shares["production"] * later["propensity"].to_numpy()
        + shares["mine"] * later["mine"].to_numpy()
        + shares["prod-grid"] * grid[log.actions]
    )
    wanted = certify(later.with_columns(target=played), target_probability="target")
    found = certify(later, out / "policy.json")
    assert found.certified.estimate == pytest.approx(wanted.certified.estimate, rel=1e-12)
    without = later.drop("mine")
    assert_refused(partial(certify, without, learned), "log", "it has no column 'mine'")
    assert_refused(partial(coverage, later, learned), "policy", "pass it to understudy certify")
    given = partial(certify, later, learned, behavior=dict.fromkeys(LABELS, 0.25))
    assert_refused(given, "behavior", "must be logged")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1.5, "expert is out of range"),
        (-0.1, "expert is out of range"),
        (float("nan"), "expert is not finite"),
        (float("inf"), "expert is not finite"),
        (None, "expert is missing"),
        ("often", "expert is not a number"),
    ],
)
def test_a_probability_that_is_none_is_quarantined(value: Any, reason: str) -> None:
    column = ROWS["mine"].to_list()
    column[7] = value
    if isinstance(value, str):
        column = [str(one) for one in column]
    rows = ROWS.with_columns(mine=pl.Series(column, strict=False))
    learned = learn(rows, expert="mine", actions=LABELS)
    assert learned.policy.refused == {reason: 1}
    assert learned.policy.rows == len(ROWS) - 1


def test_a_model_is_an_expert_in_python_and_no_file_can_hold_it(tmp_path: Path) -> None:
    p = len(learn(CONTEXTS, learner="ridge", context=NAMES).policy.contextual.encoder.features)  # type: ignore[union-attr] # it has contexts
    experts = {"production": "production", "mine": Model(Always(), K, p), "ridge": "ridge"}
    ask = partial(learn, learner=experts, context=NAMES, actions=LABELS)
    policy = ask(CONTEXTS).policy
    assert list(policy.shares)[:2] == ["production", "mine"]
    nowhere = tmp_path / "no such log.csv"  # the refusal comes before the log is read
    nowhere.write_text("", encoding="utf-8")
    assert_refused(partial(ask, nowhere, out=tmp_path / "out"), "learner", "leave out `out`")
    assert not (tmp_path / "out").exists()
    wrong = {**experts, "mine": Model(Always(), K, p + 1)}
    with pytest.raises(us.errors.InvalidArgument, match="features"):
        learn(CONTEXTS, learner=wrong, context=NAMES, actions=LABELS)


def test_what_was_chosen_is_stored(tmp_path: Path) -> None:
    """The learner, the version of its rules; and a policy of 0.5 names no version."""
    for asked, name in ((None, "prod-grid"), ("prod", "prod")):
        learn(ROWS, out=tmp_path / name, actions=LABELS, learner=asked)
        stored = json.loads((tmp_path / name / "policy.json").read_text(encoding="utf-8"))
        assert (stored["settings"]["learner"], stored["settings"]["rules"]) == (name, RULES)
        assert Policy.load(tmp_path / name / "policy.json").settings.rules == RULES
        del stored["settings"]["rules"]
        path = tmp_path / name / "old.json"
        path.write_text(json.dumps(stored), encoding="utf-8")
        assert Policy.load(path).settings.rules == 1
        for wrong in (0, RULES + 1, "2"):
            stored["settings"]["rules"] = wrong
            path.write_text(json.dumps(stored), encoding="utf-8")
            with pytest.raises(us.errors.InvalidSnapshot):
                Policy.load(path)


def test_the_rewards_of_the_warm_up_are_not_read() -> None:
    rng = np.random.default_rng(1)
    other = CONTEXTS.with_columns(
        reward=pl.when(pl.int_range(pl.len()) < 40)
        .then(pl.Series(rng.random(len(CONTEXTS))))
        .otherwise("reward")
    )
    one, two = (learn(rows, context=NAMES, actions=LABELS).policy for rows in (CONTEXTS, other))
    assert one.settings.learner == "exp4"
    assert np.array_equal(one.average, two.average)


def test_random_features_are_bounded_before_they_are_drawn() -> None:
    """A billion of them would take all memory."""
    for name in ("ridge", "exp4"):
        with pytest.raises(us.errors.InvalidArgument, match="pass at most features="):
            learn(CONTEXTS, learner=f"{name}:features=100000", context=NAMES, actions=LABELS)


def test_random_features_for_very_many_actions_are_refused_in_words() -> None:
    rows = pl.DataFrame({"action": ["a0", "a1"] * 40, "reward": 1.0, "propensity": 0.5})
    rows = rows.with_columns(x=pl.int_range(80) % 7)
    actions = [f"a{i}" for i in range(18_000)]
    with pytest.raises(us.errors.InvalidArgument, match="pass at most features=0"):
        learn(rows, learner="exp4:features=20", context="x", actions=actions)
    for asked, expert in (("exp4:features=0", 0), ("exp4:features=3", 2)):  # one a temperature
        shares = learn(rows, learner=asked, context="x").policy.shares
        assert sum(name.startswith("fourier ridge") for name in shares) == expert


@pytest.mark.parametrize(
    ("K", "labels", "expert"),
    [
        (60, 200, "tables"),
        (150, 160, "ridge"),
        (2_000, 25, "ridge"),
        (2_500, 58, "tables"),  # more numbers than a ridge regression, which would be refused
    ],
)
def test_a_default_whose_learners_are_all_large_has_one_of_them(
    K: int, labels: int, expert: str
) -> None:
    """Each has more numbers than the share of one in a mixture; tables need rows in each cell."""
    n = 2_000 if labels == 160 else 8_000
    rows = pl.DataFrame({"action": np.arange(n) % K, "reward": 0.5, "propensity": 1 / K})
    rows = rows.with_columns(label=pl.format("l{}", pl.int_range(n) * 7 % labels))
    shares = learn(rows, context="label", warmup=n // 10).policy.shares
    assert {name.split(",")[0] for name in shares} == {"production", "prod-grid", expert}


def test_a_column_with_the_name_of_an_expert_is_refused() -> None:
    for name, context in (("production", None), ("prod-grid", None), ("ridge", NAMES)):
        rows = CONTEXTS.with_columns(pl.lit(0.25).alias(name))
        with pytest.raises(us.errors.InvalidArgument, match="rename the column"):
            learn(rows, expert=name, context=context, actions=LABELS)


def test_production_is_an_expert_once() -> None:
    mapping = {"plain": "prod", "as it was": "production"}
    policy = learn(ROWS, learner=mapping, expert="mine", actions=LABELS).policy
    assert list(policy.shares) == ["as it was", "mine", "plain"]


def test_the_least_propensity_is_an_assumption_if_estimates_are_centred() -> None:
    """A smaller one in the log is said; without a center there is no such assumption."""
    words = "has a propensity of at least"
    for rows, said in (
        (CONTEXTS.with_columns(propensity=0.25), "the least one of the warm-up"),
        (LATER_RARE, "here one is 0.001"),
    ):
        found = learn(rows, context=NAMES, actions=LABELS).report.assumptions
        assert [one for one in found if words in one and said in one]
    for rows, context in ((ROWS, None), (CONTEXTS.with_columns(mine=0.25), NAMES)):
        found = learn(rows, expert="mine", actions=LABELS, context=context).report.assumptions
        assert not [one for one in found if words in one]
