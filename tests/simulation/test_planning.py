"""Plans: what they assume, how they say it, and what no plan can be made for."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.refusals import assert_refused
from understudy.errors import InvalidArgument
from understudy.simulation import plan_words
from understudy.simulation.planned_game import PlannedGame

pytestmark = pytest.mark.large

EASY: dict[str, Any] = {"exploration": 0.5, "reward": 0.2, "gain": 0.1, "runs": 40}
LATENCY = us.Guardrail("latency_ms", low=0.0, high=2000.0, better="lower", margin=20.0)
QUALITY = us.Guardrail("quality", low=1.0, high=5.0, better="higher", margin=0.5)


@pytest.fixture(scope="module")
def easy() -> us.Plan:
    return us.plan(3, traffic=100.0, **EASY)


def test_power_is_monotone_and_inverse_to_rounds(easy: us.Plan) -> None:
    rounds, power = easy.curve
    assert (np.diff(rounds) > 0).all()
    assert (np.diff(power) > 0).all()
    assert power[-1] >= 0.9
    for chance in (0.05, 0.5, 0.9):
        at = easy.rounds_for(chance)
        assert easy.power_at(at) >= chance > easy.power_at(at - 1)
    assert (easy.median, easy.ninety) == (easy.rounds_for(0.5), easy.rounds_for(0.9))
    assert easy.power_at(0) == 0.0
    assert easy.rounds_for(1e-9) == rounds[0]
    for wrong in (0.0, 1.5, math.nan, "half"):
        with pytest.raises(InvalidArgument):
            easy.rounds_for(wrong)  # type: ignore[arg-type] # on purpose


def test_traffic_scales_days_only(easy: us.Plan) -> None:
    other, none = us.plan(3, traffic=200.0, **EASY), us.plan(3, **EASY)
    assert other.decisions.tolist() == easy.decisions.tolist() == none.decisions.tolist()
    assert easy.median_days == easy.median / 100.0
    assert easy.ninety_days == easy.ninety / 100.0
    assert other.ninety_days == easy.ninety / 200.0
    assert none.median_days is None
    assert none.ninety_days is None


@pytest.mark.parametrize("against", ["production", "action"])
def test_the_game_has_the_gain_that_matters(against: str) -> None:
    plan = us.plan(
        production=[0.6, 0.3, 0.1], reward=0.2, gain=0.05, against=against, runs=2, longest=10
    )
    q, means, policy = plan.game.behavior, plan.game.means, plan.game.target
    assert isinstance(policy, np.ndarray)
    assert policy.tolist() == [0.0, 0.0, 1.0]  # the action that is played least
    baseline = q if against == "production" else np.eye(3)[0]
    assert float(policy @ means - baseline @ means) == pytest.approx(0.05)
    assert plan.gain == pytest.approx(0.05)
    assert means[:2].tolist() == [0.2, 0.2]


def test_exploration_is_uniform_beside_one_incumbent() -> None:
    plan = us.plan(4, exploration=0.2, reward=0.1, gain=0.1, runs=2, longest=10)
    assert plan.game.behavior.tolist() == pytest.approx([0.85, 0.05, 0.05, 0.05])
    assert plan.game.best == 3  # the last of those that are played least
    second = us.plan(4, exploration=0.2, reward=0.1, gain=0.1, best=1, runs=2, longest=10)
    assert second.game.best == 1


def test_means_and_policies_are_played_as_given() -> None:
    means = [0.1, 0.2, 0.4]
    plan = us.plan(production=[0.5, 0.5, 0.0], means=means, runs=2, longest=10)
    assert plan.game.best == 1  # production never plays the last one
    policy = us.plan(
        production=[0.5, 0.4, 0.1], means=means, policy=[0, 0.5, 0.5], runs=2, longest=9
    )
    assert policy.gain == pytest.approx(0.3 - 0.17)
    assert policy.sooner == {}
    assert any("0 %, 50 % and 50 %" in one for one in plan_words.assumptions(policy))


@pytest.mark.parametrize("learner", ["prod-grid", "exp3-ix"])
def test_a_named_learner_is_the_one_that_learns_from_logs(learner: str) -> None:
    q = [0.7, 0.3]
    horizon = 400 if learner == "exp3-ix" else None
    by_name = us.plan(
        production=q, means=[0.2, 0.7], learner=learner, horizon=horizon, runs=9, longest=400
    )
    own = us.prod_grid(q, prior="behavior") if horizon is None else us.exp3_ix(q, horizon=400)
    by_hand = us.plan(production=q, means=[0.2, 0.7], learner=own, runs=9, longest=400)
    assert by_name.decisions.tolist() == by_hand.decisions.tolist()
    assert by_name.limit is None
    assert by_name.gain == pytest.approx(0.7 - 0.35)
    if horizon is not None:
        assert us.plan(production=q, means=[0.69, 0.7], learner=own, runs=3).longest == 400


def test_without_a_verdict_a_plan_says_more_than() -> None:
    plan = us.plan(2, traffic=10.0, exploration=0.1, reward=0.5, gain=0.01, runs=5, longest=300)
    assert plan.longest == 300
    assert math.isinf(plan.median)
    assert repr(plan) == "More than 30 days for a 50 % chance of a verdict."
    assert "information limit" in plan_words.hints(plan)[0]
    assert plan.sooner == {}
    half = dataclasses.replace(plan, decisions=np.array([1.0, 20.0, 40.0, math.inf, math.inf]))
    assert repr(half) == "About 4 days for a 50 % chance of a verdict, more than 30 days for 90 %."


def test_the_first_sentence_has_two_significant_digits(easy: us.Plan) -> None:
    found = dataclasses.replace(easy, decisions=np.repeat([1234.0, 2149.0], [30, 10]))
    assert repr(found) == "About 12 days for a 50 % chance of a verdict, 21 days for 90 %."
    rows = dataclasses.replace(found, traffic=None)
    assert repr(rows) == "About 1,200 rows for a 50 % chance of a verdict, 2,100 rows for 90 %."


def test_every_assumption_is_said(easy: us.Plan) -> None:
    said = plan_words.assumptions(easy)
    assert all(one.startswith("Assumes that ") and one.endswith(".") for one in said)
    text = " ".join(said)
    for part in ("66.7 %", "16.7 %", "+0.1 a row more than production", "action 2", "95 %"):
        assert part in text
    learner = us.plan(2, learner="prod-grid", **{**EASY, "runs": 3})
    assert any("a learner while it learns" in one for one in plan_words.assumptions(learner))


def test_more_exploration_is_sooner(easy: us.Plan) -> None:
    """By the information limit, to which the rounds of simulations are about proportional."""
    assert list(easy.sooner) == [1.0]
    assert easy.sooner[1.0] < easy.ninety
    uniform = us.plan(3, **{**EASY, "exploration": 1.0, "runs": 200})
    assert 0.6 < easy.sooner[1.0] / uniform.ninety < 1.6
    assert easy.limit is not None
    assert easy.limit < easy.ninety


def test_a_guardrail_delays_the_verdict(easy: us.Plan) -> None:
    guardrails = [us.PlannedGuardrail(LATENCY, 120.0, 80.0), us.PlannedGuardrail(QUALITY, 4.0, 0.8)]
    plan = us.plan(3, traffic=100.0, guardrails=guardrails, **EASY)
    assert plan.median > easy.median
    assert plan.sooner == {}
    text = " ".join(plan_words.assumptions(plan))
    assert "latency_ms is 120 with a standard deviation of 80" in text
    assert "20 above that is still harmless" in text
    assert "0.5 below that is still harmless" in text
    assert plan.slowest is not None
    assert plan.slowest[0] == "latency_ms"
    assert plan.median >= plan.slowest[1] > easy.median
    assert "The guardrail latency_ms takes longest: about " in plan_words.hints(plan)[0]
    loose = us.Guardrail("quality", low=1.0, high=5.0, better="higher", margin=3.9)
    free = us.plan(3, guardrails=[us.PlannedGuardrail(loose, 4.0, 0.8)], **EASY)
    assert free.slowest is None
    assert easy.slowest is None
    bad = [us.PlannedGuardrail(LATENCY, 120.0, 80.0, effect=15.0)]
    assert us.plan(3, guardrails=bad, longest=3_000, **EASY).power_at(3_000) < 0.5
    assert "changes it by +15" in " ".join(
        plan_words.assumptions(us.plan(3, guardrails=bad, longest=50, **EASY))
    )


@pytest.mark.parametrize("metric", [LATENCY, QUALITY])
@pytest.mark.parametrize("place", [0.02, 0.4, 0.97])
@pytest.mark.parametrize("spread", [None, 0.0, 0.05, 0.9])
def test_outcomes_have_the_mean_and_the_deviation(
    metric: us.Guardrail, place: float, spread: float | None
) -> None:
    width = metric.high - metric.low
    mean = metric.low + place * width
    most = math.sqrt(place * (1.0 - place)) * width
    deviation = None if spread is None else spread * most
    planned = us.PlannedGuardrail(metric, mean, deviation, effect=0.0)
    one = planned.outcomes(3, best=1)
    p = one.chance[0]
    values = np.array([one.low, one.high])
    found = p * values[1] + (1.0 - p) * values[0]
    assert found == pytest.approx(float(metric.unit(mean)))
    wanted = (most if deviation is None else deviation) / width
    assert math.sqrt(p * (1.0 - p)) * (values[1] - values[0]) == pytest.approx(wanted, abs=1e-12)
    assert 0.0 <= one.low <= one.high <= 1.0
    assert one.chance.tolist() == [p] * 3
    moved = us.PlannedGuardrail(metric, mean, most / 2.0, effect=0.001 * width).outcomes(3, best=1)
    shift = (moved.chance[1] - moved.chance[0]) * (moved.high - moved.low)
    assert abs(shift) == pytest.approx(0.001)
    assert (shift > 0) == (metric.better == "higher")


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"mean": 2500.0}, "mean"),
        ({"mean": 100.0, "deviation": 900.0}, "deviation"),
        ({"mean": 100.0, "deviation": 10.0, "effect": 50.0}, "effect"),
        ({"mean": 100.0, "effect": -200.0}, "effect"),
    ],
)
def test_impossible_guardrails_are_refused(wrong: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        us.PlannedGuardrail(LATENCY, **wrong)
    assert caught.value.argument == argument


OWN = us.exp3_ix([0.5, 0.5], horizon=100)
METRIC = us.PlannedGuardrail(LATENCY, 120.0)
MEANS: dict[str, Any] = {"production": [0.5, 0.5], "means": [0.1, 0.2]}
HOPELESS: list[tuple[dict[str, Any], str, str]] = [
    ({"reward": 0.1, "gain": 0.1}, "exploration", "not known"),
    ({"exploration": 0.5, "reward": 0.1, "gain": 0.1}, "actions", "how many"),
    ({"actions": 3, "production": [0.5, 0.5], "exploration": 0.5}, "exploration", "twice"),
    ({"actions": 3, **MEANS}, "actions", "2 probabilities"),
    ({"actions": 2, "exploration": 0.0, "reward": 0.1, "gain": 0.1}, "exploration", "at least"),
    ({"production": [1.0, 0.0], "reward": 0.1, "gain": 0.1}, "production", "one action only"),
    ({"actions": 2, "exploration": 0.5, "gain": 0.1}, "reward", "not known"),
    ({"actions": 2, "exploration": 0.5, "reward": 0.1}, "gain", "not known"),
    ({"actions": 2, "exploration": 0.5, "reward": 0.8, "gain": 0.3}, "gain", "the most is 1"),
    ({"production": [0.5, 0.5, 0.0], "reward": 0.1, "gain": 0.1, "best": 2}, "best", "never plays"),
    (
        {"actions": 2, "exploration": 0.5, "reward": 0.1, "gain": 0.1, "best": 2},
        "best",
        "2 actions",
    ),
    (
        {
            "actions": 2,
            "exploration": 0.5,
            "reward": 0.1,
            "gain": 0.1,
            "best": 0,
            "against": "action",
        },
        "best",
        "over itself",
    ),
    ({**MEANS, "reward": 0.1}, "reward", "already"),
    ({**MEANS, "best": 1}, "best", "already"),
    ({**MEANS, "means": [0.1, 0.2, 0.3]}, "means", "3 entries"),
    ({**MEANS, "means": [0.2, 0.2]}, "means", "more than production"),
    ({**MEANS, "policy": [1.0, 0.0]}, "policy", "no gain"),
    ({**MEANS, "policy": [0.2, 0.3, 0.5]}, "policy", "3 entries"),
    (
        {"actions": 2, "exploration": 0.5, "reward": 0.1, "gain": 0.1, "policy": [0, 1]},
        "policy",
        "means",
    ),
    ({**MEANS, "policy": [0, 1], "learner": "prod-grid"}, "learner", "already"),
    (
        {"production": [0.9, 0.1, 0.0], "means": [0.1, 0.2, 0.5], "policy": [0, 0.5, 0.5]},
        "policy",
        "never plays its action 2",
    ),
    ({**MEANS, "horizon": 10}, "horizon", "for learners"),
    ({**MEANS, "learner": "prod-grid", "horizon": 10}, "horizon", "none"),
    ({**MEANS, "learner": OWN, "horizon": 10}, "horizon", "its own"),
    ({**MEANS, "learner": OWN, "longest": 200}, "longest", "100 rounds"),
    ({**MEANS, "learner": "lin-prod"}, "learner", "no such"),
    ({**MEANS, "learner": 3}, "learner", "has no"),
    ({**MEANS, "learner": us.exp3_ix([0.5, 0.3, 0.2], eta=0.1)}, "learner", "actions"),
    ({**MEANS, "learner": "prod-grid", "guardrails": [METRIC]}, "guardrails", "not simulated"),
    ({**MEANS, "guardrails": [METRIC, METRIC]}, "guardrails", "twice"),
    ({**MEANS, "guardrails": [LATENCY]}, "guardrails", "holds"),
    (
        {**MEANS, "guardrails": [us.PlannedGuardrail(LATENCY, 100.0, effect=20.0)]},
        "guardrails",
        "by its margin",
    ),
]


@pytest.mark.parametrize(("arguments", "argument", "part"), HOPELESS)
def test_hopeless_plans_are_refused_with_a_remedy(
    arguments: dict[str, Any], argument: str, part: str
) -> None:
    assert_refused(lambda: us.plan(**{"runs": 2, "longest": 10, **arguments}), argument, part)


def test_a_figure_has_the_curve_and_both_chances(easy: us.Plan) -> None:
    (axes,) = easy.plot("Our e-mails").axes
    assert axes.get_xlabel() == "days of data"
    labels = [text.get_text() for text in axes.texts]
    assert len(labels) == 2
    assert all(label.endswith(" days") for label in labels)
    curve = axes.get_lines()[0]
    assert np.asarray(curve.get_xdata())[-1] == easy.curve[0][-1] / 100.0
    nothing = us.plan(2, exploration=0.1, reward=0.5, gain=0.01, runs=5, longest=10)
    (axes,) = nothing.plot().axes
    assert axes.get_xlabel() == "rows of data"
    assert not axes.texts


def test_a_plan_owns_what_it_says(easy: us.Plan) -> None:
    assert not easy.decisions.flags.writeable
    assert isinstance(easy.game, PlannedGame)
    with pytest.raises(dataclasses.FrozenInstanceError):
        easy.longest = 3  # type: ignore[misc] # on purpose
