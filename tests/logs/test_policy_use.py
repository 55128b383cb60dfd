"""A learned policy in use: its probabilities, draws and certificates, and examples/policy.js."""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
import subprocess
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.logs.log_files import LABELS, K, make_rows
from tests.support.paths import ROOT
from tests.support.programs import find
from tests.support.refusals import assert_refused
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs import Policy, certify, coverage, learn

pytestmark = pytest.mark.plain

ROWS = 1_200
PRODUCTION = "production"
LEAST_SHARE = 1e-3  # of an outside policy that must be given, as docs/policy-json.md has it
SMALLEST = 1e-100  # probability that is drawn, likewise
FLAT = dict.fromkeys(LABELS, 1.0 / K)
STEEP = dict(zip(LABELS, (0.4, 0.3, 0.2, 0.1), strict=True))
GIVEN: dict[int | str, float] = dict(zip(LABELS, (0.4, 0.1, 0.3, 0.2), strict=True))


def rows_of(seed: int = 0, rows: int = ROWS) -> pl.DataFrame:
    """Rows with two contexts, of which some are missing, and the column of a weak model."""
    rng = np.random.default_rng(seed + 100)
    frame = make_rows(rows, seed, context=True)
    model = np.where((frame["action"] == "south").to_numpy(), 0.4, 0.2)
    holes = pl.Series(rng.random(rows) < 0.1)
    return frame.with_columns(
        x=pl.when(holes).then(None).otherwise("x"),
        model=model,
        n=pl.Series(rng.integers(0, 3, rows)),
    )


LEARNED: dict[str, dict[str, Any]] = {
    "prod-grid": {},
    "prod-grid, half as production": {"learner": "prod-grid:production=0.5"},
    "prod-grid from production": {"behavior": GIVEN},
    "exp3-ix": {"learner": "exp3-ix"},
    "exp3-ix of a horizon": {"learner": "exp3-ix", "horizon": 1_000},
    "exp3-ix-unknown": {"behavior": "estimated"},
    "coverage-adaptive": {"learner": "coverage-adaptive"},
    "coverage-adaptive of a vector": {"learner": "coverage-adaptive", "behavior": GIVEN},
    "ridge": {"learner": "ridge", "context": ["x", "color"]},
    "pessimistic ridge": {"learner": "ridge:beta=0.5,temperature=0.1", "context": ["x", "color"]},
    "ridge on Fourier features": {"learner": "ridge:features=20", "context": "x"},
    "lin-prod-compact": {"learner": "lin-prod-compact", "context": ["x", "color"]},
    "tables": {"learner": "tables", "context": ["color", "x"]},
    "mixture": {"context": ["x", "color"]},
    "mixture of a given behavior": {"context": ["x", "color"], "behavior": GIVEN},
    "mixture with a model": {"context": ["x", "color"], "expert": "model"},
    "mixture without contexts": {"expert": "model"},
}
CONTEXTS: list[dict[str, Any]] = [
    {"x": 0.3, "color": "red"},
    {"x": -1e9, "color": "blue"},
    {"x": None, "color": "green"},
    {"x": math.nan, "color": None},
    {"x": 1, "color": "red"},
]
OUTSIDE: dict[str, Mapping[Any, float]] = {PRODUCTION: STEEP, "model": FLAT}


@cache
def learned(name: str) -> Policy:
    return learn(rows_of(), actions=LABELS, **LEARNED[name]).policy


def context_of(policy: Policy, context: Mapping[str, Any]) -> dict[str, Any] | None:
    if policy.contextual is None:
        return None
    return {name: context[name] for name in policy.contextual.encoder.names}


def outside_of(policy: Policy) -> dict[str, Any]:
    """The arguments that a policy needs of its outside policies."""
    spec, given = policy.study.learner.spec, dict[str, Any]()
    if PRODUCTION in spec.outside:
        given[PRODUCTION] = STEEP
    if spec.columns:
        given["experts"] = {name: OUTSIDE[name] for name in spec.columns}
    return given


def needs_no_outside(policy: Policy, context: Mapping[str, Any] | None) -> bool:
    """Whether it does as outside policies do so seldom that they can be left out."""
    x = None
    if policy.contextual is not None and context is not None:
        x = policy.contextual.features_of_one(context)[np.newaxis]
    shares = policy.study.learner.known_at(policy.study.state, x)[1]
    return bool((shares <= LEAST_SHARE).all())


def converted(given: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """The same arguments, with a function of the probabilities of each outside policy."""
    return {
        name: converted(value, convert) if name == "experts" else convert(value)
        for name, value in given.items()
    }


def in_order(by_label: Mapping[str, float]) -> list[float]:
    return [by_label[label] for label in sorted(LABELS)]


# --------------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize("name", LEARNED)
def test_a_request_gets_the_bits_of_the_learner(name: str) -> None:
    """One at a time, in the order of the actions or by label, and many at once."""
    policy = learned(name)
    learner, state, given = policy.study.learner, policy.study.state, outside_of(policy)
    ordered, wanted = converted(given, in_order), []
    for one in CONTEXTS:
        context = context_of(policy, one)
        x = None
        if policy.contextual is not None:
            assert context is not None
            row = pl.DataFrame({f"context.{name}": [value] for name, value in context.items()})
            (x,) = policy.contextual.features(row)
        wanted.append(learner.policy(state, x, **ordered))
        for arguments in (given, ordered):
            found = policy.probabilities(context, **arguments)
            assert list(found) == sorted(LABELS)
            assert np.array([*found.values()]).tobytes() == wanted[-1].tobytes()
    n = len(CONTEXTS)
    columns = {name: [one[name] for one in CONTEXTS] for name in CONTEXTS[0]}
    many = converted(given, lambda by_label: np.tile(in_order(by_label), (n, 1)))
    if policy.contextual is None:
        rows = policy.probabilities_of(**many)
        assert rows.shape == (n if many else 1, K)
        assert rows.tobytes() == np.array(wanted)[: len(rows)].tobytes()
        return
    frame = pl.DataFrame(columns, strict=False)
    for table in (columns, frame, frame.to_arrow()):
        assert policy.probabilities_of(table, **many).tobytes() == np.array(wanted).tobytes()


def test_a_policy_can_be_copied_and_pickled_after_its_first_request() -> None:
    policy = learned("mixture")
    context, given = CONTEXTS[0], outside_of(policy)
    wanted = policy.probabilities(context, **given)
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)):
        assert again.probabilities(context, **given) == wanted


def test_labels_of_outside_probabilities_have_any_spelling_and_zeros_can_be_left_out() -> None:
    rows = rows_of().with_columns(pl.col("action").replace_strict(LABELS, ["1", "2", "3", "4"]))
    policy = learn(rows, actions=[1, 2, 3, 4], context="x").policy
    wanted = policy.probabilities({"x": 0.5}, production=[0.5, 0.0, 0.5, 0.0])
    for production in ({1: 0.5, 3: 0.5}, {"1": 0.5, "3.0": 0.5}, {1: 0.5, 2: 0, 3: 0.5, 4: 0}):
        assert policy.probabilities({"x": 0.5}, production=production) == wanted


# ------------------------------------------------------------------------------ outside policies


def test_an_outside_policy_that_matters_is_asked_for() -> None:
    half = learned("prod-grid, half as production")
    share = half.study.learner.known_at(half.study.state, None)[1]
    assert share > LEAST_SHARE
    assert_refused(half.probabilities, "production", "pass production=")
    assert_refused(partial(half.draw, rng=np.random.default_rng(0)), "production", "production=")
    mixed = learned("mixture without contexts")
    assert mixed.shares["model"] > LEAST_SHARE
    assert_refused(partial(mixed.probabilities, production=STEEP), "experts", "pass experts=")


def test_an_outside_policy_of_a_negligible_share_is_left_out() -> None:
    """The rest is divided by its sum: the same as if the outside policy played as the rest does."""
    for name, context in (("prod-grid", None), ("mixture", CONTEXTS[0])):
        policy = learned(name)
        assert needs_no_outside(policy, context)
        found = policy.probabilities(context)
        assert policy.probabilities(context, production=found) == pytest.approx(found, rel=1e-12)


def test_outside_policies_that_are_refused() -> None:
    mixed, plain = learned("mixture with a model"), learned("exp3-ix")
    of_one: Callable[..., object] = partial(mixed.probabilities, CONTEXTS[0])
    of_many: Callable[..., object] = partial(mixed.probabilities_of, pl.DataFrame([CONTEXTS[0]]))
    none: list[Any] = [[0.5, 0.5], [1.0, 1.0, 0.0, 0.0], [1.5, -0.5, 0.0, 0.0], [math.nan] * 4]
    for wrong in [*none, "abcd"]:
        for ask, argument, given in (
            (of_one, "production", {"production": wrong}),
            (of_one, "experts['model']", {"production": STEEP, "experts": {"model": wrong}}),
            (of_many, "production", {"production": [wrong]}),
        ):
            assert_refused(partial(ask, **given), argument, "pass probabilities of shape")
    other = partial(mixed.probabilities, CONTEXTS[0], production={"up": 1.0})
    assert_refused(other, "production", "not among those")
    for ask in (of_one, of_many):
        assert_refused(partial(ask, experts={"other": FLAT}), "experts", "pass those of model")
        assert_refused(partial(ask, experts=[0.25] * K), "experts", "they need names")
    ragged = partial(of_many, production=[[0.5, 0.5], [1.0]])
    assert_refused(ragged, "production", "must be an array of numbers")
    assert_refused(partial(plain.probabilities, production=FLAT), "production", "leave it out")
    assert_refused(partial(plain.probabilities, experts={"a": FLAT}), "experts", "leave it out")
    assert_refused(partial(plain.probabilities, {"x": 1.0}), "context", "leave it out")
    assert_refused(partial(plain.probabilities_of, {"x": [1.0]}), "context", "leave it out")


def test_contexts_that_are_no_table_are_refused() -> None:
    policy = learned("ridge")
    for wrong in (None, 3, [CONTEXTS[0]], {"x": [1.0], "color": ["red", "blue"]}):
        assert_refused(partial(policy.probabilities_of, wrong), "contexts", "pass a data frame")
    for missing in ({"x": [1.0]}, {"x": [1.0], "context.color": ["red"]}):
        with pytest.raises(InvalidArgument) as caught:
            policy.probabilities_of(missing)
        assert caught.value.value == list(missing)
        assert "there is no column 'color'; pass the columns x, color" in str(caught.value)


# ------------------------------------------------------------------------------------------ draws


@pytest.mark.parametrize("name", ["prod-grid", "mixture", "tables"])
def test_draws_have_the_frequencies_of_their_propensities(name: str) -> None:
    """A draw is where a uniform number of the caller's generator falls among the probabilities."""
    policy = learned(name)
    context, given = context_of(policy, CONTEXTS[0]), outside_of(policy)
    expected = policy.probabilities(context, **given)
    rng, again = np.random.default_rng(7), np.random.default_rng(7)
    edges = np.cumsum([*expected.values()])
    for _ in range(200):
        action, propensity = policy.draw(context, rng, **given)
        assert propensity == pytest.approx(expected[action], rel=1e-12)
        assert action == sorted(LABELS)[int((again.random() > edges).sum())]


def test_a_draw_needs_a_generator_and_an_error_takes_no_number_of_it() -> None:
    policy, rng = learned("mixture"), np.random.default_rng(0)
    assert_refused(partial(policy.draw, CONTEXTS[0], **outside_of(policy)), "rng", "default_rng")
    assert_refused(partial(policy.draw, {}, rng), "context", "it has no value of x")
    assert rng.random() == np.random.default_rng(0).random()


def test_an_action_that_cannot_be_divided_by_is_never_drawn() -> None:
    """Its probability is positive, but too small for a propensity."""
    sure = learn(
        pl.DataFrame({"action": ["a", "b"] * 5_000, "reward": [1, 0] * 5_000, "propensity": 0.5}),
        learner="exp3:eta=1.0",
    ).policy
    assert 0.0 <= sure.probabilities()["b"] < SMALLEST
    rng = np.random.default_rng(0)
    assert {sure.draw(rng=rng) for _ in range(20)} == {("a", 1.0)}


def test_shares_are_the_weights_of_the_experts() -> None:
    policy = learned("mixture with a model")
    assert list(policy.shares)[:3] == ["production", "model", "prod-grid"]
    assert sum(policy.shares.values()) == pytest.approx(1.0, abs=1e-12)
    assert learned("ridge").shares == {}
    half = learned("prod-grid, half as production")
    first, second = (half.probabilities(production={label: 1.0}) for label in sorted(LABELS)[:2])
    label = min(LABELS)
    assert half.shares["production"] == pytest.approx(first[label] - second[label], abs=1e-12)
    assert sum(half.shares.values()) == 1.0
    fourier = us.learners.random_fourier(
        dimension=2, features=4, gamma=0.5, rng=np.random.default_rng(0)
    )
    experts = {
        "production": "production",
        "model": us.learners.Outside("model"),
        "ridge": us.ridge(n_actions=K, dimension=5),
    }
    own = us.learners.Mapped(us.exp4(us.Logged(K), experts), fourier)
    rows = rows_of().with_columns(y=pl.int_range(pl.len()) % 5)  # 1 and y: two features
    policy = learn(rows, learner=own, context="y", expert="model", actions=LABELS).policy
    assert list(policy.shares) == ["production", "model", "own"]
    assert sum(policy.shares.values()) == pytest.approx(1.0, abs=1e-12)


# ---------------------------------------------------------------------------------------- certify


@pytest.mark.parametrize(
    "name", ["prod-grid, half as production", "mixture", "mixture with a model", "ridge"]
)
def test_certify_plays_what_a_request_would_get(name: str) -> None:
    """Production and a model are known at the logged action, so its probability is known too."""
    policy, later = learned(name), rows_of(seed=1, rows=300)
    spec = policy.study.learner.spec
    played = []
    for row in later.iter_rows(named=True):
        # What the other actions get sums to the rest; of them no more is needed here.
        given = {PRODUCTION: row["propensity"], "model": row["model"]}
        order = [label != row["action"] for label in sorted(LABELS)]
        rest = {one: np.where(order, (1 - p) / (K - 1), p).tolist() for one, p in given.items()}
        arguments: dict[str, Any] = {}
        if PRODUCTION in spec.outside:
            arguments[PRODUCTION] = rest[PRODUCTION]
        if spec.columns:
            arguments["experts"] = {"model": rest["model"]}
        played.append(policy.probabilities(context_of(policy, row), **arguments)[row["action"]])
    column = later.with_columns(played=pl.Series(played))
    wanted = certify(column, target_probability="played", actions=LABELS).certified
    found = certify(later, policy, actions=LABELS).certified
    for of in ("lower", "upper", "gain", "estimate"):
        assert getattr(found, of) == pytest.approx(getattr(wanted, of), rel=1e-9)


@pytest.mark.parametrize("name", ["prod-grid, half as production", "mixture with a model"])
def test_the_best_action_follows_no_outside_policy(name: str) -> None:
    """So production's probabilities are not needed to play it, nor to certify it."""
    policy, later = learned(name), rows_of(seed=1, rows=300)
    best = [policy.best_action(context_of(policy, row)) for row in later.iter_rows(named=True)]
    column = later.with_columns(played=(pl.Series(best) == later["action"]).cast(pl.Float64))
    wanted = certify(column, target_probability="played", actions=LABELS).certified
    found = certify(later, policy, best_action=True, actions=LABELS).certified
    assert (found.lower, found.upper) == (wanted.lower, wanted.upper)
    given = certify(later, policy, best_action=True, actions=LABELS, behavior=GIVEN)
    assert given.certified.certificate.rounds == len(later)


def test_the_best_action_without_outside_policies_is_the_most_probable_one() -> None:
    policy = learned("ridge")
    for context in CONTEXTS:
        found = policy.probabilities(context)
        assert policy.best_action(context) == max(found, key=found.__getitem__)


def test_a_column_that_is_the_larger_part_has_no_best_action() -> None:
    rows = rows_of(rows=4_000).with_columns(model=(pl.col("reward") > 0).cast(pl.Float64))
    policy = learn(rows, expert="model", actions=LABELS).policy  # no true model: it knows rewards
    assert policy.shares["model"] > 0.9
    for ask in (policy.best_action, partial(certify, rows_of(seed=1), policy, best_action=True)):
        with pytest.raises(InvalidArgument, match=r"as expert columns do \(model\), which"):
            ask()


def test_a_log_without_what_the_policy_follows_is_refused() -> None:
    later = rows_of(seed=1)
    with pytest.raises(InvalidLog, match="no column 'model'"):
        certify(later.drop("model"), learned("mixture with a model"), actions=LABELS)
    half = learned("prod-grid, half as production")
    for behavior in (GIVEN, "estimated"):
        with pytest.raises(InvalidArgument, match="--propensity"):
            certify(later, half, actions=LABELS, behavior=behavior)


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("mixture", "contexts"),
        ("mixture without contexts", "production, model"),
    ],
)
def test_coverage_says_why_a_policy_has_no_probability_per_action(name: str, on: str) -> None:
    cover = partial(coverage, rows_of(seed=1), learned(name), actions=LABELS)
    assert_refused(cover, "policy", f"it depends on {on}, row by row")


def test_coverage_takes_frequencies_for_production() -> None:
    """A policy that follows production alone has an average policy per action."""
    policy, later = learned("prod-grid, half as production"), rows_of(seed=1)
    average = dict(zip(policy.actions.labels, policy.average.tolist(), strict=True))
    found, wanted = (coverage(later, one, actions=LABELS) for one in (policy, average))
    assert str(found) == str(wanted)


# ----------------------------------------------------------------------------- examples/policy.js


SCRIPT = """
const { probabilities } = require(process.argv[1]);
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(
  ([policy, requests]) => requests.map(([x, outside]) => probabilities(policy, x, outside)))));
"""
EXAMPLE = str(ROOT / "examples" / "policy.js")
LANGUAGES_AGREE = 1e-9


def without_curvature(policy: Policy, folder: Path) -> Policy:
    """The policy as 0.5.0 would have saved it: LinProd's constant is 1 then."""
    data = json.loads(policy.to_json())
    del data["learner"]["curvature"]
    path = folder / "policy.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return Policy.load(path)


@pytest.mark.needs("node")
def test_javascript_finds_the_same_probabilities(tmp_path: Path) -> None:
    """Of every kind of learner that `understudy learn` makes, in random contexts."""
    rng, cases, wanted = np.random.default_rng(5), [], []
    colors = ["red", "blue", "green", None]
    contexts = CONTEXTS + [
        {"x": float(x), "color": colors[int(rng.integers(4))]} for x in rng.normal(size=20) * 3
    ]
    old = without_curvature(learned("lin-prod-compact"), tmp_path)
    for policy in (*map(learned, LEARNED), old):
        requests = []
        given = converted(outside_of(policy), in_order)
        outside = {**given, **given.get("experts", {})}
        for one in contexts:
            context = context_of(policy, one)
            known = {name: None if is_nan(x) else x for name, x in (context or {}).items()}
            requests.append([known, outside])
            wanted.append([*policy.probabilities(context, **given).values()])
            if needs_no_outside(policy, context):
                requests.append([known, {}])
                wanted.append([*policy.probabilities(context).values()])
        cases.append([json.loads(policy.to_json()), requests])
    text = run_node("-e", SCRIPT, EXAMPLE, text=json.dumps(cases))
    found = [row for rows in json.loads(text) for row in rows]
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=LANGUAGES_AGREE)


@pytest.mark.needs("node")
def test_javascript_takes_labels_on_the_command_line(tmp_path: Path) -> None:
    policy, path = learned("mixture with a model"), tmp_path / "policy.json"
    policy.save(path)
    text = run_node(EXAMPLE, str(path), json.dumps(CONTEXTS[0]), json.dumps(OUTSIDE))
    wanted = policy.probabilities(CONTEXTS[0], production=STEEP, experts={"model": FLAT})
    assert json.loads(text) == pytest.approx(wanted, abs=LANGUAGES_AGREE)


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)  # which JSON cannot hold


def run_node(*arguments: str, text: str = "") -> str:
    """What node prints."""
    node = find("node")
    assert node is not None
    done = subprocess.run(
        [node, *arguments], check=False, input=text, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    return done.stdout


# --------------------------------------------------------------------------- docs/policy-json.md

# Parts that are for the report or the certificate, which no other language needs to understand.
UNDESCRIBED = (
    "certificate",
    "context_groups",
    "repeated",
    "sticky",
    "units",
    "quarantined",
    "estimator",
)


def fields_of(data: Any) -> set[str]:
    """The names of all fields, and the kinds of all objects."""
    if isinstance(data, list):
        return set().union(*map(fields_of, data))
    if not isinstance(data, dict):
        return set()
    inner = [fields_of(value) for name, value in data.items() if name not in UNDESCRIBED]
    kind = data.get("kind")
    return set(data).union(*inner, {kind} if isinstance(kind, str) else ())


@pytest.mark.parametrize("name", LEARNED)
def test_every_field_is_described(name: str) -> None:
    page = (ROOT / "docs" / "policy-json.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", page))
    missing = fields_of(json.loads(learned(name).to_json())) - words
    assert not missing


def test_no_number_in_a_column_of_numbers_is_missing() -> None:
    policy = learned("ridge")
    many = policy.probabilities_of({"x": [1.0, "b"], "color": ["red", "red"]})
    missing = policy.probabilities_of({"x": [1.0, None], "color": ["red", "red"]})
    assert np.array_equal(many, missing)
    assert not np.array_equal(many[0], many[1])
