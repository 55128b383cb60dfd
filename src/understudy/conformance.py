"""The laws that every learner obeys, and `check_learner`, which tests them on a given one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from understudy.constraints import COUNT, SEED, Array
from understudy.errors import BrokenLaw, InvalidArgument, NotMergeable, NotSaveable
from understudy.protocols import LEARNER, PRODUCTION, EventSpec, Learner
from understudy.snapshots import from_json, to_json
from understudy.types import Log

AnyLearner = Learner[Any]
MERGE_TOLERANCE = 1e-9  # states add up to rounding, so policies agree to a little more


def example_log(learner: AnyLearner, rounds: int, seed: int) -> Log:
    """A random log that fits the spec of the learner, with rewards of 0 and 1 among others."""
    rng = np.random.default_rng(seed)
    spec = learner.spec
    support = np.arange(spec.n_actions) if spec.support is None else np.flatnonzero(spec.support)
    rewards = rng.random(rounds)
    rewards[::4], rewards[1::4] = 0.0, 1.0
    features = None if spec.features is None else _features(learner, spec, rounds, rng)
    return Log(
        actions=rng.choice(support, size=rounds),
        rewards=rewards,
        propensities=rng.uniform(0.05, 1.0, rounds) if spec.propensities else None,
        features=features,
        experts=rng.random((rounds, len(spec.columns))) if spec.columns else None,
    )


def _features(learner: AnyLearner, spec: EventSpec, rounds: int, rng: np.random.Generator) -> Array:
    """Random features, shrunk until the learner takes them: it may bound their size.

    If it takes none of these, numbers of contexts, 0 and 1.
    """
    assert spec.features is not None
    features = rng.normal(size=(rounds, *spec.features))
    action = 0 if spec.support is None else int(np.argmax(spec.support))
    q = np.ones(rounds) if spec.propensities else None
    given = np.ones((rounds, len(spec.columns))) if spec.columns else None
    # 2^60: from the largest features to the smallest that mean something
    tried = [features / 2.0**halvings for halvings in range(60)]
    for found in (*tried, rng.integers(2, size=features.shape).astype(np.float64)):
        log = Log(np.full(rounds, action), np.zeros(rounds), q, found, given)
        try:
            learner.replay(learner.init(), log)
        except InvalidArgument:
            continue
        return np.asarray(found)
    raise BrokenLaw("no features of the shape that learner.spec names are accepted")


def check_learner(learner: AnyLearner, *, rounds: int = 40, seed: int = 0) -> list[str]:
    """Test every law on a learner; the names of the laws, or `BrokenLaw` with what broke.

    >>> import understudy as us
    >>> us.check_learner(us.exp3_ix([0.5, 0.5], horizon=100))[0]
    'policies are probabilities'
    """
    log = example_log(LEARNER("learner", learner), COUNT("rounds", rounds), SEED("seed", seed))
    for name, law in LAWS.items():
        try:
            law(learner, log)
        except BrokenLaw as broken:
            raise BrokenLaw(f"{name}: {broken}") from broken
    return list(LAWS)


def _demand(holds: Any, what: str) -> None:
    if not holds:
        raise BrokenLaw(what)


def _bits(value: Any) -> Any:
    """A state of any class as nested data that compares exactly."""
    if dataclasses.is_dataclass(value):
        return [_bits(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return [_bits(item) for item in value]
    return value


def _same_bits(first: Any, second: Any) -> bool:
    return bool(_bits(first) == _bits(second))


def _policy_at(learner: AnyLearner, state: Any, log: Log, t: int) -> Array:
    """The policy of round t; an outside policy has its logged probability."""
    spec, x = learner.spec, None if log.features is None else log.features[t]
    if not spec.outside:
        return learner.policy(state, x)
    known: dict[str, Any] = {}
    if PRODUCTION in spec.outside:
        assert log.propensities is not None
        known["production"] = _with_probability(spec, log.actions[t], log.propensities[t])
    if spec.columns:
        assert log.experts is not None
        values = zip(spec.columns, log.experts[t], strict=True)
        known["experts"] = {
            name: _with_probability(spec, log.actions[t], value) for name, value in values
        }
    return learner.policy(state, x, **known)


def _with_probability(spec: EventSpec, action: Any, probability: float) -> Array:
    """A policy with this probability of one action; all others are alike."""
    policy = np.full(spec.n_actions, (1.0 - probability) / (spec.n_actions - 1))
    policy[action] = probability
    return policy


def _all_policies(learner: AnyLearner, log: Log) -> tuple[Any, Array]:
    """The last state and every π_t, one by one if the log does not have all outside policies."""
    if not learner.spec.outside:
        return learner.policies(learner.init(), log)
    state, found = learner.init(), []
    for t, event in enumerate(log.events()):
        found.append(_policy_at(learner, state, log, t))
        state = learner.update(state, event)
    return state, np.array(found)


def _policies_are_probabilities(learner: AnyLearner, log: Log) -> None:
    state, policies = _all_policies(learner, log)
    _demand(policies.shape == (len(log), learner.spec.n_actions), "policies are not (n, K)")
    _demand(np.isfinite(policies).all(), "a probability is not finite")
    _demand((policies >= 0).all(), "a probability is negative")
    _demand(np.allclose(policies.sum(axis=1), 1, rtol=0, atol=1e-12), "a policy does not sum to 1")
    _demand(learner.rounds(state) == len(log), "rounds are miscounted")


def _update_is_pure(learner: AnyLearner, log: Log) -> None:
    first, *later = log.stretches(max(1, len(log) // 2))
    state, _ = learner.replay(learner.init(), first)
    before = _bits(state)
    for event in islice(log.events(), 3):  # an event of reward 0 may change nothing anyway
        once, again = learner.update(state, event), learner.update(state, event)
        _demand(_bits(state) == before, "update changed the state that it was given")
        _demand(_same_bits(once, again), "the same update gave two different states")
    for part in later:
        learner.replay(state, part)
        if not learner.spec.outside:
            learner.policies(state, part)
    _demand(_bits(state) == before, "replay or policies changed the state that it was given")


def _replay_is_update(learner: AnyLearner, log: Log) -> None:
    state = learner.init()
    probability = []
    for t, event in enumerate(log.events()):
        probability.append(_policy_at(learner, state, log, t)[event.action])
        state = learner.update(state, event)
    replayed, trace = learner.replay(learner.init(), log)
    _demand(_same_bits(state, replayed), "replay and update differ in their state")
    _demand(np.array_equal(trace.probability, probability), "the trace is not π_t(A^B_t)")
    after, policies = _all_policies(learner, log)
    _demand(_same_bits(after, replayed), "policies and replay differ in their state")
    played = policies[np.arange(len(log)), log.actions]
    _demand(np.array_equal(played, probability), "policies and policy differ")


def _batching_does_not_matter(learner: AnyLearner, log: Log) -> None:
    whole, trace = learner.replay(learner.init(), log)
    state, parts = learner.init(), []
    for chunk in log.stretches(7):  # the last chunk is shorter than the others
        state, part = learner.replay(state, chunk)
        parts.append(part.probability)
    _demand(_same_bits(state, whole), "two batchings give two states")
    _demand(np.array_equal(np.concatenate(parts), trace.probability), "two batchings, two traces")


def _nothing_changes_nothing(learner: AnyLearner, log: Log) -> None:
    state, _ = learner.replay(learner.init(), log)
    after, trace = learner.replay(state, log[:0])
    _demand(_same_bits(after, state), "an empty log changed the state")
    _demand(len(trace.probability) == 0, "an empty log left a trace")


def _snapshots_are_exact(learner: AnyLearner, log: Log) -> None:
    half, _ = learner.replay(learner.init(), log[: len(log) // 2])
    try:
        text = to_json(learner, half)
    except NotSaveable:
        return  # said with a reason, which is allowed
    again, state = from_json(text)
    _demand(to_json(again, state) == text, "a snapshot does not survive a round trip")
    rest = log[len(log) // 2 :]
    direct, loaded = learner.replay(half, rest), again.replay(state, rest)
    _demand(_same_bits(direct[0], loaded[0]), "a loaded learner learns differently")
    _demand(
        np.array_equal(direct[1].probability, loaded[1].probability), "a loaded learner differs"
    )


def _merging_is_adding(learner: AnyLearner, log: Log) -> None:
    first, _ = learner.replay(learner.init(), log[: len(log) // 3])
    second, _ = learner.replay(learner.init(), log[len(log) // 3 :])
    try:
        merged = learner.merge(first, second)
    except NotMergeable as refusal:
        _demand(str(refusal), "NotMergeable must give the reason")
        return
    whole, _ = learner.replay(learner.init(), log)
    swapped = learner.merge(second, first)
    with_nothing = learner.merge(whole, learner.init())
    _demand(learner.rounds(merged) == len(log), "merging loses rounds")
    wanted = _policy_at(learner, whole, log, 0)
    for state, what in ((merged, "the parts"), (swapped, "swapped"), (with_nothing, "nothing")):
        found = _policy_at(learner, state, log, 0)
        _demand(
            np.allclose(found, wanted, rtol=MERGE_TOLERANCE, atol=1e-12), f"merging {what} differs"
        )


def _bad_events_are_refused(learner: AnyLearner, log: Log) -> None:
    state, _ = learner.replay(learner.init(), log)
    before = _bits(state)
    good = next(log.events())
    wrong = [
        dataclasses.replace(good, action=learner.spec.n_actions),
        dataclasses.replace(good, propensity=None if good.propensity is not None else 0.5),
        dataclasses.replace(good, features=None if good.features is not None else np.zeros(3)),
        dataclasses.replace(good, experts=None if good.experts is not None else np.zeros(1)),
    ]
    for event in wrong:
        try:
            learner.update(state, event)
        except InvalidArgument:
            _demand(_bits(state) == before, "a refused event changed the state")
        else:
            raise BrokenLaw(f"an event that does not fit was learned from: {event}")


LAWS: dict[str, Callable[[AnyLearner, Log], None]] = {
    "policies are probabilities": _policies_are_probabilities,
    "update is pure": _update_is_pure,
    "replay is update, bit for bit": _replay_is_update,
    "batching does not matter": _batching_does_not_matter,
    "an empty log changes nothing": _nothing_changes_nothing,
    "snapshots are exact": _snapshots_are_exact,
    "merging is adding, or is refused": _merging_is_adding,
    "bad events are refused and change nothing": _bad_events_are_refused,
}
