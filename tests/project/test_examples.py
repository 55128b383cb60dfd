"""The examples run, and what they claim is so."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import understudy as us


@pytest.mark.large
def test_the_digits_example() -> None:
    """Learners read digits from a log that never says what would have been right.

    The true reward of each while learning is above production's by many standard errors, and the
    log alone certifies it. The mixture keeps its bound against the best of its experts.
    """
    pytest.importorskip("sklearn", reason="pip install scikit-learn")
    digits = importlib.import_module("examples.digits")
    rng = np.random.default_rng(1)
    world = digits.make_world(rng)
    assert not set(world.shown) & set(world.held_out)
    held_out = world.production[world.held_out]
    assert 0.4 < world.reward(held_out) < 0.5
    shown, log = digits.make_log(world, digits.PREFIX + digits.ROUNDS, rng)
    earned = {}
    for name, learner in digits.make_learners(world, shown[: digits.PREFIX]).items():
        learned = digits.learn(world, shown, log, learner)
        gain = learned.earned - learned.production
        assert gain.mean() > 10 * gain.std(ddof=1) / np.sqrt(len(gain)), name
        assert 0 < learned.certified.gain <= gain.sum(), name
        assert learned.certified.lower <= learned.earned.sum() <= learned.certified.upper, name
        assert learned.final > world.reward(held_out), name
        earned[name] = learned.earned.sum()
    *experts, mixture = earned.values()
    after = shown[digits.PREFIX :]
    squares = float((1.0 / world.production[after, world.labels[after]]).sum())
    assert mixture >= max(experts) - us.theory.exp4_bound(7, squares=squares)
