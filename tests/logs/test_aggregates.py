"""Sums by `understudy.logs.aggregation`: the same on every engine, row by row, and in order."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import understudy as us
from tests.support.logs.invalid_rows import LABELS, ByHand, by_hand, dirty_log, labels_of
from tests.support.logs.sums import Actions, Columns, FileSource, LogStatistics
from tests.support.strategies import quick, seeds
from understudy.certificates import CENTERS, largest_ratios
from understudy.errors import InvalidArgument, NotMergeable
from understudy.learners import CoverageAdaptive, ExponentialWeights
from understudy.logs.aggregation import aggregates as tallies
from understudy.logs.aggregation.aggregates import log_statistics, rows_of, seen_actions
from understudy.logs.aggregation.engines import ENGINES, open_frame
from understudy.logs.aggregation.sufficient_statistics import certify_sums, learn_sums

pytestmark = pytest.mark.plain

EXACT = 1e-9  # relative
K = 5
ACTIONS = Actions(labels_of("integers"))
PI_B = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
POLICY = np.array([0.05, 0.0, 0.15, 0.3, 0.5])
BEHAVIOR = dict(zip(ACTIONS.texts, PI_B.tolist(), strict=True))
ON_ENGINES = [
    pytest.param(
        engine, marks=[pytest.mark.needs("java", "pyspark")] if engine == "pyspark" else []
    )
    for engine in ENGINES
]
SLOW = ("dask", "pyspark")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for all tests of this file: starting Spark takes longer than all of them."""
    sql = importlib.import_module("pyspark.sql")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        session = sql.SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """A table as a native frame of an engine, read from a file of two parts."""
    with contextlib.ExitStack() as stack:

        def opened(engine: str, table: pa.Table, columns: Columns | None = None) -> Any:
            if engine == "pyspark":
                request.getfixturevalue("spark")
            half, paths = len(table) // 2, [tmp_path / "1.parquet", tmp_path / "2.parquet"]
            for path, part in zip(paths, (table[:half], table[half:]), strict=True):
                pyarrow.parquet.write_table(part, path)
            sources = [FileSource(path, "parquet") for path in paths]
            named = columns or Columns()
            if "target" in table.column_names:
                named = dataclasses.replace(named, target="target")
            return stack.enter_context(open_frame(engine, sources, named))

        yield opened


def assert_tallied(found: LogStatistics, labels: tuple[str, ...], hand: ByHand) -> None:
    sums = found.sums
    assert found.actions.texts == labels
    assert found.reject_counts == dict(hand.refused)
    assert sums.counts.tolist() == hand.sums(labels, lambda _, __: 1.0)
    terms: list[tuple[Any, Callable[[float, float], float]]] = [
        (sums.rewards, lambda R, _: R),
        (sums.weighted, lambda R, q: R / q),
        (sums.weights, lambda _, q: 1.0 / q),
        (sums.squares, lambda _, q: 1.0 / q**2),
    ]
    for column, term in terms:
        np.testing.assert_allclose(column, hand.sums(labels, term), rtol=EXACT)
    for a, label in enumerate(labels):
        own = [q for text, _, q, _ in hand.rows if text == label] or [math.nan]
        np.testing.assert_equal([sums.lowest[a], sums.highest[a]], [min(own), max(own)])


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("engine", ON_ENGINES)
def test_tallies_are_those_of_python_on_every_engine(engine: str, kind: str, opened: Open) -> None:
    table = dirty_log(kind=kind)
    found = log_statistics(opened(engine, table), Columns())
    assert_tallied(found, labels_of(kind), by_hand(table))


def with_nan(*roles: str) -> pa.Table:
    """Good rows, of which some have no number in a column: a Parquet file does not say so."""
    table = dirty_log()
    good = table.filter([bool(by_hand(table[i : i + 1]).rows) for i in range(len(table))])
    for k, role in enumerate(roles):
        values = [math.nan if i % 7 == k else x for i, x in enumerate(good[role].to_pylist())]
        good = good.set_column(good.column_names.index(role), role, [values])
    return good


@pytest.mark.parametrize("engine", ON_ENGINES)
def test_nan_among_good_numbers_is_refused_on_every_engine(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Also where an engine believes the smallest and largest that a file alone states."""
    if engine == "pyspark":
        request.getfixturevalue("spark")
    roles = ("reward", "propensity", "target")
    table, columns, path = with_nan(*roles), Columns(target="target"), tmp_path / "log.parquet"
    pyarrow.parquet.write_table(table, path)
    with open_frame(engine, [FileSource(path, "parquet")], columns) as frame:
        found = log_statistics(frame, columns)
    wrong = {role: sum(map(math.isnan, table[role].to_pylist())) for role in roles}
    assert found.reject_counts == {f"{role} is not finite": count for role, count in wrong.items()}
    assert found.sums.rows == len(table) - sum(wrong.values())
    sums = (found.sums.rewards, found.sums.weighted, found.sums.weights, found.sums.squares)
    assert all(np.isfinite(column).all() for column in sums)


def arrow_types() -> Any:
    return pytest.importorskip("pandas").ArrowDtype


@pytest.mark.parametrize("frame", ["pandas", "pyarrow", "polars", "duckdb of another connection"])
def test_frames_in_memory_and_relations_of_the_user_are_taken(frame: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    table = dirty_log(kind="texts")
    with duckdb.connect() as connection:
        makers: dict[str, Callable[[], Any]] = {
            "pandas": lambda: table.to_pandas(types_mapper=arrow_types()),
            "pyarrow": lambda: table,
            "polars": lambda: pl.from_arrow(table),
            "duckdb of another connection": lambda: connection.from_arrow(table),
        }
        native = makers[frame]()
        labels, hand = labels_of("texts"), by_hand(table)
        assert_tallied(log_statistics(native, Columns()), labels, hand)
        judged = certify_sums(
            native, Columns(), actions=Actions(labels), policy=POLICY, lambdas=[0.5]
        )
    assert_certified(judged.certificate, hand, labels, us.Logged(K), POLICY)


def test_nan_is_missing_in_a_pandas_column_that_knows_no_other() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"action": [1, 2, 3], "reward": [1.0, 0.0, math.nan]})
    assert log_statistics(frame, Columns(propensity=None)).reject_counts == {"reward is missing": 1}


WRITTEN = {
    "0.5": None, "1": None, ".25": None, "1.": None, "1e-3": None, "+0.5": None,
    "": "missing", "many": "not a number", " 0.5": None, "1_0": "not a number",
    "0,5": "not a number", "١": "not a number", "nan": "not finite", "-Inf": "not finite",
    "Infinity": "not finite", "1e400": "not finite", "-0.1": "out of range", "2E0": "out of range",
}  # fmt: skip


@pytest.mark.parametrize("engine", ON_ENGINES)
def test_numbers_that_are_text_are_read_alike(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Also with commas and line breaks in a column that is not read."""
    if engine == "pyspark":
        request.getfixturevalue("spark")
    path = tmp_path / "log.csv"
    lines = [f'a,"{text}",0.5,"x,\ny ""z"""' if text else "a,,0.5," for text in WRITTEN]
    lines += [f'b,1,"{text}",' if text else "b,1,," for text in WRITTEN]
    path.write_text("\n".join(["action,reward,propensity,note", *lines, "c,1,0.5,"]) + "\n")
    with open_frame(engine, [FileSource(path, "csv")], Columns()) as frame:
        found = log_statistics(frame, Columns())
    wrong = [reason for reason in WRITTEN.values() if reason]
    assert found.reject_counts == {
        f"{role} is {reason}": wrong.count(reason)
        for role in ("reward", "propensity")
        for reason in dict.fromkeys(["missing", "not a number", "not finite", "out of range"])
    }
    assert found.sums.counts.tolist() == [len(WRITTEN) - len(wrong)] * 2 + [1]
    assert found.sums.rewards[0] == pytest.approx(0.5 + 1 + 0.25 + 1 + 1e-3 + 0.5 + 0.5, rel=EXACT)


@given(seed=seeds, cut=st.integers(0, 120))
@quick
def test_tallies_of_parts_add_up_in_any_order(seed: int, cut: int) -> None:
    frame = pl.from_arrow(dirty_log(rows=120, seed=seed))
    assert isinstance(frame, pl.DataFrame)
    whole = log_statistics(
        frame.sample(fraction=1.0, shuffle=True, seed=seed), Columns(), actions=ACTIONS
    )
    parts = [
        log_statistics(part, Columns(), actions=ACTIONS) for part in (frame[:cut], frame[cut:])
    ]
    combine = {"lowest": np.fmin, "highest": np.fmax}  # the others are sums
    for name, found in vars(whole.sums).items():
        one, other = (getattr(part.sums, name) for part in parts)
        added = combine.get(name, np.add)(one, other)
        np.testing.assert_allclose(added, found, rtol=EXACT, err_msg=name)
    assert Counter(parts[0].reject_counts) + Counter(parts[1].reject_counts) == whole.reject_counts


def test_rewards_of_another_range_are_rescaled() -> None:
    table = dirty_log()
    wide = [None if R is None else 8.0 * R - 3.0 for R in table["reward"].to_pylist()]
    whole = table.set_column(1, "reward", [wide])
    found = log_statistics(whole, Columns(), reward_range=(-3.0, 5.0))
    assert_tallied(found, ACTIONS.texts, by_hand(table))


def test_declared_actions_and_a_fixed_behavior_refuse_what_they_do_not_have() -> None:
    """Unknown actions, and those of probability 0."""
    table, labels = dirty_log(), ("0", "1", "3", "7")
    behavior = {"0": 0.5, "1": 0.25, "3": 0.0, "7": 0.25}
    found = log_statistics(table, Columns(), behavior=behavior)
    assert_tallied(found, labels, by_hand(table, known=labels, behavior=behavior))
    assert found.reject_counts["action is unknown"] > 0
    assert found.reject_counts["action has probability 0 in the behavior"] > 0
    assert found.sums.weights[2] == found.sums.weights[3] == 0.0
    declared = log_statistics(table, Columns(), actions=Actions(labels))
    assert_tallied(declared, labels, by_hand(table, known=labels))


def test_without_propensities_there_are_counts_and_rewards_only() -> None:
    table = dirty_log()
    found = log_statistics(table, Columns(propensity=None)).sums
    hand = by_hand(table, behavior=dict.fromkeys(ACTIONS.texts, 1.0))
    assert found.rewards.tolist() == pytest.approx(hand.sums(ACTIONS.texts, lambda R, _: R))
    for column in (found.weighted, found.weights, found.squares, found.lowest, found.highest):
        assert np.isnan(column).all()


def test_all_labels_of_a_column_are_seen() -> None:
    frame = pl.DataFrame({"item": [3.0, 10.0, None, math.nan, 3.0], "reward": 1.0})
    assert seen_actions(frame, Columns(action="item", propensity=None)).texts == ("3", "10")


# ------------------------------------------------------------------------------------- learners


def logarithmic(pi_b: Any, *, horizon: int) -> CoverageAdaptive:
    return us.coverage_adaptive(pi_b, horizon=horizon, gain="logarithmic")


RECIPES = (us.exp3, us.exp3_ix, us.prod, us.coverage_adaptive, logarithmic)


def in_order(hand: ByHand, *, propensities: bool) -> us.Log:
    texts, rewards, q, _ = zip(*hand.rows, strict=True)
    return us.Log([ACTIONS.texts.index(a) for a in texts], rewards, q if propensities else None)


def assert_learned(frame: Any, table: pa.Table, recipe: Callable[..., Any], behavior: Any) -> None:
    learner, logged = recipe(behavior, horizon=300), isinstance(behavior, us.Logged)
    hand = by_hand(table, behavior=None if logged else BEHAVIOR)
    found = learn_sums(frame, Columns(), learner, actions=ACTIONS)
    replayed, _ = learner.replay(learner.init(), in_order(hand, propensities=logged))
    learner.validate(found.state)
    assert found.reject_counts == dict(hand.refused)
    assert found.state.rounds == replayed.rounds == len(hand.rows)
    scores = replayed.scores + replayed.residues
    np.testing.assert_allclose(found.state.scores + found.state.residues, scores, rtol=EXACT)
    np.testing.assert_allclose(learner.policy(found.state), learner.policy(replayed), rtol=EXACT)


@pytest.mark.parametrize("behavior", [us.Logged(K), PI_B], ids=["logged", "fixed"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_sums_give_the_state_of_a_replay(recipe: Callable[..., Any], behavior: Any) -> None:
    table = dirty_log()
    assert_learned(table, table, recipe, behavior)


@pytest.mark.parametrize("engine", ON_ENGINES)
def test_sums_give_the_state_of_a_replay_on_every_engine(engine: str, opened: Open) -> None:
    """Of a formula in a row's own propensity, and of one that needs that of the row's action."""
    table = dirty_log()
    frame = opened(engine, table)
    assert_learned(frame, table, us.exp3_ix, us.Logged(K))
    assert_learned(frame, table, us.prod, PI_B)


@given(R=st.floats(1e-12, 1.0), q=st.floats(1e-6, 1.0), eta=st.floats(1e-9, 2.0))
@quick
def test_tiny_logarithmic_gains_keep_their_digits(R: float, q: float, eta: float) -> None:
    frame = pl.DataFrame({"action": ["0"], "reward": [R], "propensity": [q]})
    found = learn_sums(frame, Columns(), us.prod(us.Logged(K), eta=eta), actions=ACTIONS)
    assert isinstance(found.state, us.learners.Scores)
    assert found.state.scores[0] == pytest.approx(math.log1p(eta * (R / q)) / eta, rel=1e-13)


ORDERED: dict[str, Any] = {
    "a rate that falls": us.exp3_ix(us.Logged(K)),
    "grids whose rates fall": us.coverage_adaptive(us.Logged(K)),
    "a counted behavior": us.exp3_ix_unknown(K, horizon=9),
    "exploration that falls": us.exp3_ix(us.Logged(K), eta=0.1, gamma=lambda t: 1 / t),
}


@pytest.mark.parametrize("learner", ORDERED.values(), ids=ORDERED)
def test_learners_that_need_the_order_are_refused(learner: Any) -> None:
    with pytest.raises(NotMergeable, match="replay the log in its order"):
        learn_sums(dirty_log(), Columns(), learner, actions=ACTIONS)
    with pytest.raises(NotMergeable, match="replay the logs one after the other"):
        learner.from_sufficient_statistics(np.zeros(K), 0)


@pytest.mark.parametrize(
    ("learner", "sums"),
    [
        (us.exp3(PI_B, horizon=9), np.zeros(K - 1)),
        (us.exp3(PI_B, horizon=9), [0.0] * (K - 1) + [math.nan]),
        (us.coverage_adaptive(PI_B, horizon=9), np.zeros((2, K))),
        (us.coverage_adaptive(us.Logged(K), horizon=9), np.zeros((1, K))),
    ],
)
def test_sums_of_another_shape_are_refused(
    learner: ExponentialWeights | CoverageAdaptive, sums: Any
) -> None:
    with pytest.raises(InvalidArgument, match="sums = "):
        learner.from_sufficient_statistics(sums, 3)


def test_sums_need_a_number_of_rounds() -> None:
    with pytest.raises(InvalidArgument, match="rounds = -1"):
        us.exp3(PI_B, horizon=9).from_sufficient_statistics(np.zeros(K), -1)


# --------------------------------------------------------------------------------- certificates


def numbers(certificate: us.Certificate) -> NDArray[np.float64]:
    totals, S = certificate.evidence.totals, certificate.evidence.log_wealths()
    bounds = [certificate.lower, certificate.upper, certificate.gain or 0.0]
    means = [certificate.self_normalised, certificate.effective_sample_size]
    return np.concatenate([totals, S, bounds, means])


def assert_certified(
    found: us.Certificate, hand: ByHand, labels: tuple[str, ...], behavior: Any, policy: Any
) -> None:
    """It is what a certificate with the same arguments observes in order."""
    actions = [labels.index(row[0]) for row in hand.rows]
    q = [row[2] for row in hand.rows] if isinstance(behavior, us.Logged) else None
    log = us.Log(actions, [row[1] for row in hand.rows], q)
    probabilities = [row[3] for row in hand.rows] if policy is None else policy[actions]
    trace = us.Trace(np.asarray(probabilities), 0, n_actions=len(labels))
    empty = us.Certificate(
        behavior, found.confidence, lambdas=found.lambdas, centers=CENTERS, rules=found.rules
    )
    target = trace if policy is None else us.FixedPolicy(policy)
    observed = empty.observe(log, target)
    if hand.aside:  # rows that cannot be read count with the worst that they may have been
        rewards, own = zip(*hand.aside, strict=True)
        actions = [0 if one is None else labels.index(one[0]) for one in own]
        known = [one is not None and policy is not None for one in own]
        pi = np.where(known, math.nan if policy is None else policy[actions], math.nan)
        propensities = np.array([1.0 if one is None else one[1] for one in own])
        rest = us.Log._of(np.array(actions), np.array(rewards), propensities)
        ratio = largest_ratios(target, log, empty.behavior)[0]
        observed = observed.advance(rest, pi, ratio)
    assert found.rounds == observed.rounds
    np.testing.assert_allclose(numbers(found), numbers(observed), rtol=EXACT, atol=1e-13)
    assert observed.promoted or not found.promoted  # in order, it may have been so before


CASES = [
    pytest.param(
        *engine.values, behavior, policy, least, marks=engine.marks, id=f"{engine.values[0]}-{name}"
    )
    for engine in ON_ENGINES
    for name, behavior, policy, least in [
        ("logged-column", None, None, None),
        ("logged-policy, least propensity", None, POLICY, 0.03),
        ("fixed-policy", BEHAVIOR, POLICY, None),
        ("logged-policy", None, POLICY, None),
        ("fixed-column", BEHAVIOR, None, None),
        ("logged-column, least propensity", None, None, 0.03),
    ][: 2 if engine.values[0] in SLOW else 6]
]


@pytest.mark.parametrize(("engine", "behavior", "policy", "least"), CASES)
def test_certificates_of_sums_are_those_of_observing_in_order(
    engine: str, behavior: Any, policy: Any, least: float | None, opened: Open
) -> None:
    """With a short grid on engines that take seconds to plan 464 sums, whatever the rows."""
    table, lambdas = dirty_log(), [1.0, 0.125] if engine in SLOW else None
    judged = certify_sums(
        opened(engine, table),
        Columns(target="target" if policy is None else None),
        actions=ACTIONS,
        policy=policy,
        behavior=behavior,
        confidence=0.9,
        lambdas=lambdas,
        least_propensity=least,
    )
    known = us.Logged(K, least) if behavior is None else PI_B
    limits = known.range if isinstance(known, us.Logged) else (0.0, 1.0)
    hand = by_hand(table, behavior=behavior, limits=limits)
    assert judged.reject_counts == dict(hand.refused)
    assert_certified(judged.certificate, hand, ACTIONS.texts, known, policy)
    assert judged.certificate.promoted_at is None


def test_a_promotion_is_seen_in_sums_and_goes_on_from_there() -> None:
    """As of merged logs; and the sums of two halves merge into those of the whole."""
    frame = pl.DataFrame({"action": ["0", "1"] * 400, "reward": [0, 1] * 400, "propensity": 0.5})
    both, two = Actions(("0", "1")), np.array([0.0, 1.0])
    whole = certify_sums(frame, Columns(), actions=both, policy=two).certificate
    halves = [
        certify_sums(part, Columns(), actions=both, policy=two).certificate
        for part in (frame[:400], frame[400:])
    ]
    assert whole.promoted
    assert whole.promoted_at is None
    np.testing.assert_allclose(numbers(halves[0].merge(halves[1])), numbers(whole), rtol=EXACT)
    later = whole.observe(us.Log([1], [1.0], [0.5]), 1.0)
    assert (later.rounds, later.promoted) == (801, True)


def test_unknown_actions_count_as_rows_in_which_the_target_earns_nothing() -> None:
    table, labels = dirty_log(), ("0", "1", "2")
    judged = certify_sums(table, Columns(), actions=Actions(labels), policy=[0.5, 0.5, 0.0])
    hand = by_hand(table, known=labels)
    assert judged.reject_counts == dict(hand.refused)
    policy = np.array([0.5, 0.5, 0.0])
    assert_certified(judged.certificate, hand, labels, us.Logged(3), policy)


@pytest.mark.parametrize("target", [None, math.nan, math.inf, -0.5, 1.5])
def test_wrong_probabilities_of_a_target_are_refused(target: float | None) -> None:
    table = dirty_log()
    column = [target, *table["target"].to_pylist()[1:]]
    assert by_hand(table[:1]).rows  # the first row is good but for this
    judged = certify_sums(
        table.set_column(3, "target", [column]),
        Columns(target="target"),
        actions=ACTIONS,
    )
    reason = "missing" if target is None else "out of range" if abs(target) < 2 else "not finite"
    assert judged.reject_counts[f"target is {reason}"] == 1


def test_a_log_without_good_rows_certifies_nothing_good() -> None:
    frame = pl.DataFrame({"action": ["0"], "reward": [2.0], "propensity": [0.5]})
    judged = certify_sums(frame, Columns(), actions=ACTIONS, policy=POLICY)
    assert (judged.certificate.rounds, judged.certificate.lower) == (1, 0.0)
    assert judged.certificate.upper == 1.0


CERTIFICATE = us.Certificate(PI_B, lambdas=[1.0], rules=1)


@pytest.mark.parametrize(
    ("S", "totals"),
    [
        ([0.1, 0.1], [1.0] * 4),
        ([0.1] * 3, [1.0] * 3),
        ([-0.1, 0.1, 0.1], [1.0] * 4),
        ([0.1] * 3, [4.0, 1.0, 1.0, 1.0]),
        ([math.nan] * 3, [1.0] * 4),
    ],
    ids=["too few S", "too few totals", "S below 0", "more than all rewards", "nan"],
)
def test_sums_that_no_log_has_are_refused(S: list[float], totals: list[float]) -> None:
    with pytest.raises(InvalidArgument):
        CERTIFICATE.from_sufficient_statistics(3, S, totals)


def test_a_counted_behavior_has_no_sums() -> None:
    with pytest.raises(NotMergeable, match="depends on the order"):
        us.Certificate(None, n_actions=2, lambdas=[1.0]).from_sufficient_statistics(
            3, [0.1] * 2, [1.0] * 4
        )


# ------------------------------------------------------------------------------------- refusals


def frame_of(**columns: Any) -> pl.DataFrame:
    plain: dict[str, Any] = {"action": [1, 2], "reward": [0.0, 1.0], "propensity": [0.5, 0.5]}
    return pl.DataFrame({**plain, **columns})


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no frame": (lambda: log_statistics([1, 2], Columns()), "it is no frame of an engine"),
    "no such column": (
        lambda: log_statistics(frame_of(), Columns(action="item")),
        "it has no column 'item', only 'action', 'reward', 'propensity'; name the right one",
    ),
    "no such column of actions": (
        lambda: seen_actions(frame_of(), Columns(action="item")),
        "it has no column 'item', only 'action', 'reward', 'propensity'; name the right one",
    ),
    "no such target": (
        lambda: certify_sums(frame_of(), Columns(target="p"), actions=ACTIONS),
        "it has no column 'p'",
    ),
    "rewards that are dates": (
        lambda: log_statistics(frame_of(reward=[pl.date(2026, 1, 1)] * 2), Columns()),
        "not numbers; name another column with --reward",
    ),
    "actions that are lists": (
        lambda: log_statistics(frame_of(action=[[1], [2]]), Columns()),
        "not labels; name another column with --action",
    ),
    "eligible sets": (
        lambda: log_statistics(frame_of(), Columns(eligible="set")),
        "sets of eligible actions are not read",
    ),
    "no good row": (
        lambda: log_statistics(frame_of(reward=[7.0, 8.0]), Columns()),
        "none of its rows can be learned from (reward is out of range: 2)",
    ),
    "a probability without an action": (
        lambda: log_statistics(
            frame_of(), Columns(), actions=ACTIONS, behavior={**BEHAVIOR, "9": 0.0}
        ),
        "behavior = '9': this action is not among those of the log",
    ),
    "probabilities that are none": (
        lambda: log_statistics(frame_of(), Columns(), behavior=dict.fromkeys(ACTIONS.texts, 0.5)),
        "sum to 2.5",
    ),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_summed_is_refused_in_one_line(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [1.0, (0.0,), (1.0, 0.0), (0.5, 0.5), (0.0, math.nan), (-math.inf, 0.0), "ab"],
    ids=str,
)
def test_wrong_ranges_of_rewards_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="reward_range = "):
        rows_of(frame_of(), Columns(), reward_range=wrong)


def test_a_column_of_too_many_labels_is_no_column_of_actions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tallies, "MOST_ACTIONS", 3)
    few, many = frame_of(action=[1, 3]), pl.DataFrame({"action": range(4), "reward": 1.0})
    assert len(log_statistics(few, Columns()).actions) == 2
    for call in (log_statistics, seen_actions):
        with pytest.raises(InvalidArgument, match="more than 3 different labels, too many"):
            call(many, Columns(propensity=None))


def test_categories_booleans_and_decimals_are_labels_and_numbers() -> None:
    frame = pl.DataFrame(
        {
            "action": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
            "reward": [True, False, True],
            "propensity": pl.Series(["0.50", "0.25", "0.25"]).str.to_decimal(scale=2),
        }
    )
    found = log_statistics(frame, Columns())
    assert (found.actions.labels, found.sums.weights.tolist()) == (("x", "y"), [6.0, 4.0])
