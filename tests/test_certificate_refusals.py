"""What certificates refuse, and that the refusal says what to do instead."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import understudy as us
from refusals import assert_refused
from understudy.errors import InvalidEvent, NotMergeable
from understudy.snapshots import as_data

PI = np.array([0.5, 0.3, 0.2])
POLICY = np.array([0.1, 0.1, 0.8])
NO_LOG: Any = [1, 2]
LOG = us.Log([0, 1, 2, 0], [1.0, 0.0, 0.5, 1.0])
LOGGED = us.Log(LOG.actions, LOG.rewards, [0.5] * 4)
BAD: dict[str, tuple[Any, str, str]] = {
    "confidence of 1": (
        lambda: us.certify(LOG, POLICY, behavior=PI, confidence=1.0),
        "confidence",
        "below 1",
    ),
    "confidence of 0": (
        lambda: us.certify(LOG, POLICY, behavior=PI, confidence=0.0),
        "confidence",
        "above 0",
    ),
    "no λ": (
        lambda: us.certify(LOG, POLICY, behavior=PI, lambdas=[]),
        "lambdas",
        "the grid is empty",
    ),
    "no λ, streaming": (
        lambda: us.Certificate(behavior=PI, lambdas=[]),
        "lambdas",
        "the grid is empty",
    ),
    "only large λ": (lambda: us.Certificate(behavior=PI, lambdas=[2.0]), "lambdas", "at most 1"),
    "q missing for an action": (
        lambda: us.certify(LOG, [0.5, 0.5], behavior=[0.5, 0.5]),
        "action of event 2",
        "there are 2 actions",
    ),
    "propensity zero on a played action": (
        lambda: us.certify(LOG, POLICY, behavior=[0.5, 0.5, 0.0]),
        "action of event 2",
        "plays it with probability 0, yet it was played",
    ),
    "a log of nothing": (
        lambda: us.certify(LOG[:0], POLICY, behavior=PI),
        "log",
        "nothing to certify",
    ),
    "no log": (lambda: us.certify(NO_LOG, POLICY, behavior=PI), "log", "not a us.Log"),
    "no log, counted": (
        lambda: us.certify(NO_LOG, POLICY, behavior=None),
        "n_actions",
        "not known",
    ),
    "propensities that nobody reads": (
        lambda: us.certify(LOGGED, POLICY, behavior=PI),
        "propensity",
        "us.Logged",
    ),
    "propensities of a counted behavior": (
        lambda: us.certify(LOGGED, POLICY, behavior=None),
        "propensity",
        "leave it out",
    ),
    "no propensities": (
        lambda: us.certify(LOG, POLICY, behavior=us.Logged(3)),
        "propensity",
        "every event",
    ),
    "K unknown": (
        lambda: us.certify(LOG, [0.5] * 4, behavior=None),
        "n_actions",
        "pass n_actions=K",
    ),
    "K unknown, streaming": (
        lambda: us.Certificate(behavior=None),
        "n_actions",
        "pass n_actions=K",
    ),
    "two K": (lambda: us.Certificate(behavior=PI, n_actions=4), "n_actions", "3 actions"),
    "a policy that does not sum to 1": (
        lambda: us.certify(LOG, [0.5, 0.5, 0.5], behavior=PI),
        "target",
        "sum to 1.5",
    ),
    "a probability above 1": (
        lambda: us.certify(LOG, [0.5, 0.5, 0.5, 1.5], behavior=PI),
        "target",
        "outside [0, 1]",
    ),
    "a column of another length": (
        lambda: us.certify(LOG, [0.5] * 5, behavior=PI),
        "target",
        "4 rounds and 3 actions",
    ),
    "a trace of another length": (
        lambda: us.certify(LOG, us.Trace(np.ones(5), 0, 3), behavior=PI),
        "target",
        "5 entries",
    ),
    "a trace of other actions": (
        lambda: us.certify(LOG, us.Trace(np.ones(4), 0, 7), behavior=PI),
        "target",
        "a trace of 7 actions",
    ),
    "a trace of what is not probabilities": (
        lambda: us.certify(LOG, us.Trace(-np.ones(4), 0, 3), behavior=PI),
        "target",
        "outside [0, 1]",
    ),
    "one number for four rounds": (lambda: us.certify(LOG, 0.5, behavior=PI), "target", "4 rounds"),
    "a matrix": (
        lambda: us.certify(LOG, np.ones((4, 3)) / 3, behavior=PI),
        "target",
        "1 dimension",
    ),
    "a word": (lambda: us.certify(LOG, "uniform", behavior=PI), "target", "4 rounds"),
    "K == n": (lambda: us.certify(LOG[1:], POLICY, behavior=PI), "target", "us.Trace"),
    "an event of no number": (
        lambda: us.Certificate(behavior=PI).observe(us.Feedback(0, 1.0), math.nan),
        "target",
        "finite",
    ),
    "evidence of another kind": (
        lambda: us.Certificate(
            behavior=PI, evidence=us.Certificate(behavior=None, n_actions=3).evidence
        ),
        "evidence",
        "same arguments",
    ),
    "merging another confidence": (
        lambda: us.Certificate(behavior=PI).merge(us.Certificate(behavior=PI, confidence=0.9)),
        "other",
        "same arguments",
    ),
    "merging another behavior": (
        lambda: us.Certificate(behavior=PI).merge(us.Certificate(behavior=PI[::-1])),
        "other",
        "same",
    ),
    "merging another kind": (
        lambda: us.Certificate(behavior=PI).merge(us.Certificate(behavior=us.Logged(3))),
        "other",
        "same",
    ),
    "merging another grid": (
        lambda: us.Certificate(behavior=PI).merge(us.Certificate(behavior=PI, lambdas=[0.5])),
        "other",
        "same",
    ),
    "merging no certificate": (lambda: us.Certificate(behavior=PI).merge(None), "other", "None"),  # type: ignore[arg-type] # what is tested
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_the_remedy(name: str) -> None:
    assert_refused(*BAD[name])


def test_a_bad_event_changes_nothing() -> None:
    certificate = us.Certificate(behavior=PI).observe(LOG, POLICY)
    before = as_data(certificate)
    with pytest.raises(InvalidEvent):
        certificate.observe(us.Log([0, 0, 3], [1.0] * 3), us.Trace(np.ones(3), 0, 3))
    assert as_data(certificate) == before


def test_counted_behaviors_are_not_merged() -> None:
    certificate = us.Certificate(behavior=None, n_actions=3)
    with pytest.raises(NotMergeable, match="order of events; observe the logs one after the other"):
        certificate.merge(certificate)
