"""What certificates refuse, and that the refusal says what to do instead."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.saved_values import saved_form
from understudy.errors import InvalidArgument, InvalidEvent, InvalidSnapshot, NotMergeable

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
        "log",
        "not a us.Log",
    ),
    "propensities that are not read": (
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
    before = saved_form(certificate)
    with pytest.raises(InvalidEvent):
        certificate.observe(us.Log([0, 0, 3], [1.0] * 3), us.Trace(np.ones(3), 0, 3))
    assert saved_form(certificate) == before


def test_counted_behaviors_are_not_merged() -> None:
    certificate = us.Certificate(behavior=None, n_actions=3)
    with pytest.raises(NotMergeable, match="order of events; observe the logs one after the other"):
        certificate.merge(certificate)


def test_a_behavior_that_may_depend_on_contexts_is_not_counted() -> None:
    """Counted as one, a behavior that follows the context would have crossed bounds."""
    log = us.Log([0, 1], [1.0, 0.0], features=np.zeros((2, 3)))
    with pytest.raises(InvalidEvent, match=r"us\.Logged"):
        us.certify(log, [0.5, 0.5, 0.0], behavior=None)
    with pytest.raises(InvalidEvent, match="features"):
        us.Certificate(None, n_actions=2).observe(us.Feedback(0, 1.0, features=[1.0]), 0.5)


def test_bounds_that_contradict_each_other_say_so() -> None:
    """Propensities of a tenth where the behavior played uniformly: nothing can be certified."""
    log = us.Log([0, 1] * 500, [1.0, 0.0] * 500, np.full(1000, 0.05))
    wrong = us.certify(log, us.FixedPolicy([0.5, 0.5]), behavior=us.Logged(2))
    assert wrong.lower > wrong.upper
    assert (wrong.promoted, wrong.promoted_at) == (False, None)
    assert "contradict" in repr(wrong)
    right = us.certify(
        log.visible(propensities=False, features=False), [0.5, 0.5], behavior=[0.5, 0.5]
    )
    assert "contradict" not in repr(right)


@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_a_fixed_policy_may_be_said_to_be_one(rounds: int) -> None:
    """Three numbers on a log of three rounds could be either; wrapped they are a policy."""
    log, policy = us.Log([0, 1, 2, 0][:rounds], [1.0] * rounds), [0.2, 0.3, 0.5]
    found = us.Certificate([0.5, 0.3, 0.2]).observe(log, us.FixedPolicy(policy))
    trace = us.Trace(np.array(policy)[log.actions], 0, n_actions=3)
    wanted = us.Certificate([0.5, 0.3, 0.2]).observe(log, trace)
    assert (found.lower, found.estimate) == (wanted.lower, wanted.estimate)
    with pytest.raises(InvalidArgument, match="3 actions"):
        us.Certificate([0.5, 0.3, 0.2]).observe(log, us.FixedPolicy([0.5, 0.5]))
    assert us.certify(log, us.FixedPolicy(policy), behavior=None).certificate.n_actions == 3


@pytest.mark.parametrize("target", [None, {}, [[1], [1, 2]], np.zeros((2, 3)), "all"])
def test_a_target_that_is_none_is_refused_before_anything_else(target: Any) -> None:
    log = us.Log([0, 1], [1.0, 0.0])
    with pytest.raises(InvalidArgument, match="target"):
        us.certify(log, target, behavior=None)


def test_one_event_is_not_a_log() -> None:
    event: Any = us.Feedback(0, 1.0)
    with pytest.raises(InvalidEvent, match=r"us\.Certificate\.observe"):
        us.certify(event, 0.5, behavior=[0.5, 0.5])


def test_messages_speak_of_certificates() -> None:
    log = us.Log([0], [1.0], [0.5])
    with pytest.raises(InvalidEvent, match=r"behavior=us\.Logged"):
        us.certify(log, us.FixedPolicy([0.5, 0.5]), behavior=[0.5, 0.5])
    with pytest.raises(InvalidEvent, match="None if it is not known"):
        us.certify(us.Log([1], [1.0]), us.FixedPolicy([0.5, 0.5]), behavior=[1.0, 0.0])
    with pytest.raises(InvalidArgument, match="or None to count it"):
        us.certify(us.Log([1], [1.0]), us.FixedPolicy([0.5, 0.5]), behavior="uniform")


def test_a_gain_that_was_lost_again_says_so() -> None:
    """Justified after a few rounds, and then the world changes."""
    actions = np.arange(4000) % 2
    rewards = np.where(np.arange(4000) < 1000, actions == 1, actions == 0).astype(float)
    found = us.certify(us.Log(actions, rewards), [0.1, 0.9], behavior=[0.5, 0.5])
    assert found.promoted
    assert found.gain is not None
    assert found.gain < 0
    assert repr(found).startswith("Worse than production after 4,000 rounds.")
    half = us.certify(us.Log(actions[:2000], rewards[:2000]), [0.1, 0.9], behavior=[0.5, 0.5])
    assert repr(half).startswith("No gain any more (first certain after round ")


def test_certificates_are_files(tmp_path: Path) -> None:
    log = us.Log([0, 1, 1], [1.0, 0.0, 1.0])
    live = us.Certificate(behavior=[0.5, 0.5]).observe(log, us.FixedPolicy([0.2, 0.8]))
    us.save_certificate(live, tmp_path / "live.json")
    again = us.load_certificate(tmp_path / "live.json")
    first, second = (one.observe(log, us.FixedPolicy([0.2, 0.8])) for one in (live, again))
    assert saved_form(first) == saved_form(second)
    us.Understudy(us.exp3([0.5, 0.5], eta=0.1)).save(tmp_path / "learner.json")
    for text in (None, "{}", '{"format": "understudy", "version": 2, "certificate": 3}'):
        path = tmp_path / "learner.json"
        if text is not None:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidSnapshot):
            us.load_certificate(path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSnapshot, match="not text"):
        us.load_certificate(tmp_path / "bytes.json")
    wrong: Any = us.certify(log, us.FixedPolicy([0.2, 0.8]), behavior=[0.5, 0.5])
    with pytest.raises(InvalidArgument, match="certificate"):
        us.save_certificate(wrong, tmp_path / "wrong.json")
