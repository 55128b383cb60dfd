"""The examples run, and what they claim is so."""

from __future__ import annotations

import importlib

import numpy as np
import pytest


@pytest.mark.large
def test_the_digits_example() -> None:
    """LinProd learns to read from a log that never says what would have been right.

    Its true reward while learning is above production's by many standard errors, and the log alone
    certifies it.
    """
    pytest.importorskip("sklearn", reason="pip install scikit-learn")
    digits = importlib.import_module("examples.digits")
    rng = np.random.default_rng(1)
    world = digits.make_world(rng)
    assert 0.4 < world.reward(world.production) < 0.5
    shown, log = digits.make_log(world, digits.PREFIX + digits.ROUNDS, rng)
    learned = digits.learn(world, shown, log)
    gain = learned.earned - learned.production
    assert gain.mean() > 10 * gain.std(ddof=1) / np.sqrt(len(gain))
    assert learned.certified.gain > 0
    assert learned.certified.lower <= learned.earned.sum() <= learned.certified.upper
    assert learned.certified.gain <= gain.sum()
    assert learned.final > 0.8
