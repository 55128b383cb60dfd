"""`understudy.logs.features`: encodings and V, which the warm-up decides without its rewards."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import understudy as us
from understudy.logs.features import LearnerFactory, Warmup

pytestmark = pytest.mark.plain

RULES = 2  # the version of the rules of new learners


def test_v_comes_from_propensities_and_not_from_plays() -> None:
    """V is Σ q(a) x xᵀ/m and a ridge, whatever was played; by the first rules plays decide it."""
    rng = np.random.default_rng(0)
    q = np.array([0.7, 0.2, 0.1])
    frame = pl.DataFrame({"context.x": rng.normal(size=200)})
    plays = [rng.permutation(np.repeat([0, 1, 2], [140, 40, 20])), rng.choice(3, 200, p=q)]
    first, second = (
        {
            rules: LearnerFactory(
                us.Logged(3), 3, warmup=Warmup.fit(frame, a, q[a], ["x"], rules=rules), rules=rules
            ).covariance[0]
            for rules in (1, RULES)
        }
        for a in plays
    )
    assert np.array_equal(first[RULES], second[RULES])
    assert not np.array_equal(first[1], second[1])
    x = Warmup.fit(frame, plays[0], None, ["x"]).contexts
    squares = q[:, np.newaxis, np.newaxis] * (x.T @ x / len(x))
    off_diagonal = ~np.eye(2, dtype=bool)
    shrink = len(x) / (len(x) + 2)
    assert first[RULES][:, off_diagonal] == pytest.approx(shrink * squares[:, off_diagonal])


def test_the_labels_of_a_single_column_have_more_features() -> None:
    """200 features for all columns, at least 50 for each; by the first rules 50 for each."""
    labels = [f"label {i}" for i in range(120)]
    frame = pl.DataFrame({"context.one": labels, "context.two": labels, "context.x": range(120)})
    played = np.zeros(120, dtype=np.int64)
    for names, rules, most in (
        (["one"], RULES, 120),
        (["one", "two"], RULES, 100),
        (["one", "two", "x"], RULES, 66),
        (["one"], 1, 50),
    ):
        found = Warmup.fit(frame, played, None, names, rules=rules)
        own = [name for name in found.encoder.features if name.startswith("one = ")]
        assert len(own) == most
