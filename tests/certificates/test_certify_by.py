"""`us.certify_by`: the certificate of each group is that of its rounds alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.refusals import assert_refused

PI = np.array([0.5, 0.3, 0.2])
LOGGED = us.Logged(n_actions=3)
N = 200


def some_log(*, logged: bool) -> us.Log:
    rng = np.random.default_rng(0)
    q = rng.uniform(0.1, 1.0, N) if logged else None
    return us.Log(rng.choice(3, size=N, p=PI), rng.random(N), q)


CITIES = np.random.default_rng(1).choice(["Rome", "Oslo", "Bonn"], size=N, p=[0.6, 0.3, 0.1])
COLUMN = np.random.default_rng(2).random(N)
CASES: dict[str, tuple[Any, Any]] = {
    "a trace": (us.Trace(COLUMN, 0, 3), PI),
    "a column": (COLUMN, PI),
    "a policy": ([0.2, 0.2, 0.6], PI),
    "a fixed policy": (us.FixedPolicy([0.2, 0.2, 0.6]), LOGGED),
    "logged": (us.Trace(COLUMN, 0, 3), LOGGED),
    "unknown": (us.Trace(COLUMN, 0, 3), None),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("groups", [CITIES, CITIES.tolist(), tuple(CITIES.tolist())])
def test_each_group_has_the_certificate_of_its_rounds(name: str, groups: Any) -> None:
    """All numbers and curves, bit for bit; groups come in the order of their first rounds."""
    target, behavior = CASES[name]
    log = some_log(logged=behavior is LOGGED)
    found = us.certify_by(groups, log, target, behavior=behavior, confidence=0.9)
    assert list(found) == list(dict.fromkeys(CITIES.tolist()))
    for city, result in found.items():
        own = city == CITIES
        q = None if log.propensities is None else log.propensities[own]
        part = us.Log(log.actions[own], log.rewards[own], q)
        if isinstance(target, us.Trace | np.ndarray):
            shown: Any = us.Trace(COLUMN[own], 0, 3)
        else:
            shown = us.FixedPolicy([0.2, 0.2, 0.6])
        wanted = us.certify(part, shown, behavior=behavior, confidence=0.9)
        assert repr(result) == repr(wanted)
        assert result.certificate.confidence == 0.9
        for curve in ("rounds", "lower_curve", "upper_curve", "production_curve", "gain_curve"):
            one, other = getattr(result, curve), getattr(wanted, curve)
            assert (one is None and other is None) or one.tobytes() == other.tobytes()


def test_groups_may_be_numbers_and_one_group_is_the_log() -> None:
    log = some_log(logged=False)
    assert set(us.certify_by(np.arange(N) % 4, log, PI, behavior=PI)) == {0, 1, 2, 3}
    (whole,) = us.certify_by([7] * N, log, COLUMN, behavior=PI).values()
    assert repr(whole) == repr(us.certify(log, COLUMN, behavior=PI))


def test_what_are_no_groups_is_refused() -> None:
    log = some_log(logged=False)
    certify: Any = us.certify_by
    for groups, words in (
        ("a" * N, "it is no sequence"),
        (None, "it is no sequence"),
        (CITIES[:-1], "the log has 200 rounds"),
        ([], "the log has 200 rounds"),
        ([["a"]] * N, "round 0 has no group"),
        ([*CITIES[:-1], float("nan")], "round 199 has no group"),
        (CITIES[:, np.newaxis], "round 0 has no group"),
    ):
        assert_refused(partial(certify, groups, log, PI, behavior=PI), "groups", words)
    for target in ([0.5, 0.5], COLUMN[:-1]):
        assert_refused(partial(us.certify_by, CITIES, log, target, behavior=PI), "target", "")
    assert_refused(lambda: us.certify_by(CITIES, log, COLUMN, behavior=None), "n_actions", "")
