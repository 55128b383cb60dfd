"""A canary: what is played is a mixture, the propensities say so, and everything goes on."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.strategies import quick
from understudy.live import mixture

ACTIONS = ("small", "medium", "large")
POWER = 1 << 10
dyadic = st.lists(st.integers(0, POWER), min_size=2, max_size=2).map(
    lambda cuts: [high - low for low, high in itertools.pairwise([0, *sorted(cuts), POWER])]
)  # numerators over a power of two: their products are exact


@quick
@given(production=dyadic, understudy=dyadic, share=st.integers(0, POWER))
def test_a_coin_first_and_then_the_policy_it_chose_is_a_draw_from_the_mixture(
    production: list[int], understudy: list[int], share: int
) -> None:
    """All outcomes of the coin and of the draw, added up in fractions: equal, to the last bit."""
    q, pi = (
        {action: Fraction(p, POWER) for action, p in zip(ACTIONS, policy, strict=True)}
        for policy in (production, understudy)
    )
    s = Fraction(share, POWER)
    played = dict.fromkeys(ACTIONS, Fraction(0))
    for coin, policy in ((1 - s, q), (s, pi)):
        for action, p in policy.items():
            played[action] += coin * p
    found = mixture(
        {action: float(p) for action, p in q.items()},
        {action: float(p) for action, p in pi.items()},
        share / POWER,
    )
    assert {action: Fraction(p) for action, p in found.items()} == played
    assert list(found) == list(ACTIONS)


def test_what_is_no_mixture_is_refused() -> None:
    half = {"a": 0.5, "b": 0.5}
    assert_refused(lambda: mixture(half, half, 1.5), "share", "at most 1")
    assert_refused(lambda: mixture({"a": 0.5, "b": 0.4}, half, 0.5), "production", "sum to 0.9")
    assert_refused(lambda: mixture(half, {"a": 1.5, "b": -0.5}, 0.5), "understudy['b']", "least 0")
    assert_refused(lambda: mixture(half, {"a": 1.0}, 0.5), "understudy", "other actions")
    assert_refused(lambda: mixture({}, {}, 0.5), "production", "sum to 0")
    wrong: Any = [0.5, 0.5]
    assert_refused(lambda: mixture(wrong, half, 0.5), "production", "no mapping; pass a dict")
    numbers = {0: 0.5, 1: 0.5}
    assert_refused(lambda: mixture(numbers, {"0": 0.5, "1": 0.5}, 0.5), "understudy", "not '1'")


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_learning_and_estimates_go_on_through_a_canary(share: float) -> None:
    """Exactly, over all sequences of a small game: what the log says of the understudy, as π/q of

    the mixture, is on average what it earned while it learned; by production's q it would not be.
    """
    production, rewards, rounds = np.array([0.75, 0.25]), np.array([0.25, 1.0]), 4
    learner = us.exp3_ix(us.Logged(n_actions=2), eta=0.5)
    earned = estimated = by_production = 0.0
    for actions in itertools.product(range(2), repeat=rounds):
        state, probability, before = learner.init(), 1.0, []
        for action in actions:
            pi = learner.policy(state)
            played = mixture(dict(enumerate(production)), dict(enumerate(pi)), share)
            q = played[action]
            before.append((pi, q, action))
            probability *= q
            state = learner.update(state, us.Feedback(action, rewards[action], q))
        for pi, q, action in before:
            earned += probability * float(pi @ rewards)
            estimated += probability * float(pi[action] * rewards[action] / q)
            by_production += probability * float(pi[action] * rewards[action] / production[action])
    assert estimated == pytest.approx(earned, rel=1e-12)
    assert (by_production > 1.05 * earned) == (share > 0)


def test_a_certificate_holds_through_a_canary_and_a_promotion() -> None:
    """The whole life of an understudy: beside production, with a share of the traffic, alone.

    The bounds hold at every point of the curve, and what is certain does not get lost on the way.
    """
    rng, means = np.random.default_rng(7), np.array([0.3, 0.6])
    production = {0: 0.8, 1: 0.2}
    learner = us.coverage_adaptive(us.Logged(n_actions=2))
    state, certificate = learner.init(), us.Certificate(us.Logged(n_actions=2))
    truth = gained = 0.0
    for share in np.repeat([0.0, 0.2, 1.0], 700):
        pi = learner.policy(state)
        q = mixture(production, dict(enumerate(pi)), share)
        action = int(rng.choice(2, p=list(q.values())))
        event = us.Feedback(action, float(rng.random() < means[action]), q[action])
        certificate = certificate.observe(event, float(pi[action]))
        state = learner.update(state, event)
        truth += float(pi @ means)
        gained += float(pi @ means) - float(np.array(list(q.values())) @ means)
        assert certificate.lower <= truth <= certificate.upper
        assert certificate.gain is not None
        assert certificate.gain <= gained
    assert certificate.promoted
    assert certificate.promoted_at is not None
    assert certificate.promoted_at < 1_400
