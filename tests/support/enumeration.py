"""Small games enumerated: every sequence of behavior actions (and contexts) with its probability.

An expected regret is then a number and not an estimate of one. Beside it, the paper's quantities
once more, written with nothing from the library.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import understudy as us
from tests.support.strategies import (
    Array,
    Game,
    Integers,
    LinearGame,
    behaviors,
)
from understudy import theory
from understudy.learners import ExponentialWeights, Learner, Scores, Sums

ROUNDING = 1e-9  # relative: what an inequality may be missed by
History = tuple[Any, ...]

KNOWN: dict[str, Callable[[Array | us.Logged, float], ExponentialWeights]] = {
    "exp3": lambda behavior, eta: us.exp3(behavior, eta=eta),
    "exp3_ix": lambda behavior, eta: us.exp3_ix(behavior, eta=eta),
    "prod": lambda behavior, eta: us.prod(behavior, eta=eta),
}
RECIPES: dict[str, Callable[[Array, float], ExponentialWeights]] = {
    **KNOWN,
    "exp3_ix_unknown": lambda behavior, eta: us.exp3_ix_unknown(len(behavior), eta=eta),
}
PESSIMISTIC = {"exp3_ix": theory.theorem1_bound, "prod": theory.prod_bound}
mild_behaviors = behaviors(max_actions=4, decades=1.0)  # so that e^{ηG} fits into a double
mild_rates = st.floats(0.01, 1.0)


# The paper's quantities, once more


def gain(name: str, reward: float, q: float, eta: float) -> float:
    """What each algorithm adds to the score of the played action."""
    match name:
        case "exp3":
            return reward / q
        case "exp3_ix":
            return reward / (q + eta / 2)
        case "prod":
            return math.log1p(eta * reward / q) / eta
    raise AssertionError(name)


def plug_in_gain(reward: float, action: int, history: History, n_actions: int, eta: float) -> float:
    """r̃_t of Equation (pit) with Theorem 2's γ_t, after the actions of `history`."""
    past = len(history)
    frequency = history.count(action) / past if past else 0.0
    width = math.sqrt(math.log(n_actions * past**2) / (2 * past)) if past else 1.0
    return reward / (frequency + width + eta / 2)


def gains_along(name: str, behavior: Array, eta: float, log: us.Log) -> Array:
    """g_t(A^B_t) of every round of a log."""
    actions = log.actions.tolist()
    events = list(enumerate(zip(actions, log.rewards.tolist(), strict=True)))
    if name == "exp3_ix_unknown":
        past = [tuple(actions[:t]) for t in range(len(log))]
        return np.array([plug_in_gain(r, a, past[t], len(behavior), eta) for t, (a, r) in events])
    return np.array([gain(name, r, float(behavior[a]), eta) for _, (a, r) in events])


def total_gains(n_actions: int, actions: Integers, gains: Array) -> Array:
    """G(a) = Σ_t g_t(a)."""
    totals = np.zeros(n_actions)
    np.add.at(totals, actions, gains)
    return totals


def log_of_mean_growth(learner: ExponentialWeights, log: us.Log, gains: Array) -> Array:
    """log Σ_a π_t(a) e^{η g_t(a)} of every round, where only the played action has a gain."""
    _, trace = learner.replay(learner.init(), log)
    return np.asarray(np.log1p(trace.probability * np.expm1(learner.rate(0) * gains)))


def estimated_rewards(game: LinearGame, contexts: Integers, log: us.Log) -> Array:
    """r̂_t(x, a) = ⟨V⁻¹ φ(X_t, A^B_t) R^B_t, φ(x, a)⟩ for every round, (n, X, K)."""
    played = game.features[contexts[: len(log)], log.actions] * log.rewards[:, np.newaxis]
    thetas = np.linalg.solve(game.V, played.T).T
    return np.asarray(np.einsum("nd,xkd->nxk", thetas, game.features))


def lin_prod_policies(learner: Learner[Any], game: LinearGame, log: us.Log) -> Array:
    """π_t(a|x) for t = 1 .. n+1 and every context, (n+1, X, K)."""
    states = [learner.init()]
    for event in log.events():
        states.append(learner.update(states[-1], event))
    return np.array([policy_table(learner, game, state) for state in states])


def policy_table(learner: Learner[Any], game: LinearGame, state: Any) -> Array:
    """π(a|x) for every context, (X, K)."""
    return np.array([learner.policy(state, shown) for shown in game.shown])


def theta_hat(game: LinearGame, before: Any, state: Any) -> Array:
    """The newest θ̂ of a state, (d,): what joined a sum, or a last row.

    A disjoint row holds only the played block.
    """
    if isinstance(state, Sums):
        return np.asarray((state.theta - before.theta).ravel())
    if game.contexts is None:
        return np.asarray(state.thetas[-1])
    blocks = np.zeros((game.n_actions, game.contexts.shape[1]))
    blocks[state.actions[-1]] = state.thetas[-1]
    return blocks.ravel()


# Enumeration


@dataclass(frozen=True, eq=False)
class Node:
    """A round that can happen: what came before it, π_t, r_t, and the state after each event.

    In games with contexts π_t and r_t are tables (X, K).
    """

    probability: float
    history: History
    policy: Array
    rewards: Array
    state: Any
    after: dict[Any, Any]


Event = tuple[float, Hashable, us.Feedback]  # probability, name, what the learner gets to see
Look = Callable[[History, Any], tuple[Array, Array, list[Event]]]  # π_t, r_t, what can happen


def reachable(learner: Learner[Any], rounds: int, look: Look) -> Iterator[Node]:
    """Every round that can happen.

    The expectation of a sum over rounds is the sum over these nodes, weighted by probability.
    """
    pending: list[tuple[float, History, Any]] = [(1.0, (), learner.init())]
    while pending:
        probability, history, state = pending.pop()
        policy, rewards, events = look(history, state)
        after = {name: learner.update(state, feedback) for _, name, feedback in events}
        yield Node(probability, history, policy, rewards, state, after)
        if len(history) + 1 < rounds:
            pending += [(probability * p, (*history, name), after[name]) for p, name, _ in events]


@dataclass(frozen=True, eq=False)
class Expected:
    """Exact expectations of sums over the rounds.

    `rewards`, `gains`, `probabilities`: E Σ_t of r_t, of the learner's estimates g_t and of π_t,
    for every action, or every context and action weighted by P(X = x). `earned` and
    `estimated`: E Σ_t ⟨π_t, r_t⟩ and E Σ_t ⟨π_t, g_t⟩.
    """

    rewards: Array
    gains: Array
    probabilities: Array
    earned: float
    estimated: float

    def regret(self, comparator: Array) -> float:
        """E[Reg(π*)]."""
        return float((comparator * self.rewards).sum()) - self.earned

    def estimated_regret(self, comparator: Array) -> float:
        """E Σ_t ⟨π* − π_t, g_t⟩."""
        return float((comparator * self.gains).sum()) - self.estimated

    def bias(self, comparator: Array) -> float:
        """E Σ_t ⟨π*, r_t − g_t⟩, the price of pessimism."""
        return float((comparator * (self.rewards - self.gains)).sum())


def summed(
    nodes: Iterable[Node], gains_at: Callable[[Node], Array], weights: Array | float = 1.0
) -> Expected:
    """The expectations; `gains_at` is E_t[g_t], `weights` is P(X = x) as a column."""
    rewards, all_gains, probabilities = np.zeros(()), np.zeros(()), np.zeros(())
    earned = estimated = 0.0
    for node in nodes:
        gains, p = gains_at(node), node.probability * weights
        rewards = rewards + p * node.rewards
        all_gains = all_gains + p * gains
        probabilities = probabilities + p * node.policy
        earned += float((p * node.policy * node.rewards).sum())
        estimated += float((p * node.policy * gains).sum())
    return Expected(rewards, all_gains, probabilities, earned, estimated)


Adversary = Callable[[Game, History, Array], Array]


def oblivious(game: Game, history: History, policy: Array) -> Array:  # noqa: ARG001 - it looks at nothing
    """r_t from a table."""
    return np.array(game.rewards[len(history)])


def contrary(game: Game, history: History, policy: Array) -> Array:  # noqa: ARG001 - it looks at actions
    """Adaptive: full reward for what the behavior has not played lately, else the table's."""
    rewards = np.array(game.rewards[len(history)])
    rewards[[a for a in range(len(rewards)) if a not in history[-2:]]] = 1.0
    return rewards


def malicious(game: Game, history: History, policy: Array) -> Array:
    """Adaptive: nothing for the action that the learner trusts most, all for the least."""
    rewards = np.array(game.rewards[len(history)])
    rewards[int(policy.argmax())] = 0.0
    rewards[int(policy.argmin())] = 1.0
    return rewards


ADVERSARIES: dict[str, Adversary] = {
    "oblivious": oblivious,
    "contrary": contrary,
    "malicious": malicious,
}
adversaries = st.sampled_from(list(ADVERSARIES.values()))


def nodes_of(learner: ExponentialWeights, game: Game, adversary: Adversary) -> Iterator[Node]:
    """All Kⁿ sequences of behavior actions, those of probability 0 left out."""

    def look(history: History, state: Scores) -> tuple[Array, Array, list[Event]]:
        policy = learner.policy(state)
        rewards = adversary(game, history, policy)
        events: list[Event] = [
            (float(game.behavior[a]), a, us.Feedback(action=a, reward=float(rewards[a])))
            for a in np.flatnonzero(game.behavior).tolist()
        ]
        return policy, rewards, events

    return reachable(learner, game.rounds, look)


def expected(learner: ExponentialWeights, game: Game, adversary: Adversary) -> Expected:
    """The exact expectations of a game without contexts."""

    def gains_at(node: Node) -> Array:
        gains = np.zeros(len(game.behavior))
        for a, after in node.after.items():
            gains[a] = game.behavior[a] * (after.scores[a] - node.state.scores[a])
        return gains

    return summed(nodes_of(learner, game, adversary), gains_at)


def expected_linear(learner: Learner[Any], game: LinearGame, *, adaptive: bool) -> Expected:
    """The exact expectations over all sequences of contexts and behavior actions.

    An adaptive adversary lets the past behavior actions choose θ_t from its table.
    """
    rounds = len(game.thetas)
    pairs = list(np.ndindex(game.behavior.shape))
    chances = {(x, a): float(game.probabilities[x] * game.behavior[x, a]) for x, a in pairs}

    def look(history: History, state: Any) -> tuple[Array, Array, list[Event]]:
        chosen = sum(a + 1 for _, a in history) % rounds if adaptive else len(history)
        rewards = game.rewards[chosen]
        events: list[Event] = [
            (chances[x, a], (x, a), us.Feedback(a, float(rewards[x, a]), None, game.shown[x]))
            for x, a in pairs
        ]
        return policy_table(learner, game, state), rewards, events

    def gains_at(node: Node) -> Array:
        thetas = [
            chances[pair] * theta_hat(game, node.state, after) for pair, after in node.after.items()
        ]
        return np.asarray(game.features @ np.sum(thetas, axis=0))

    weights = game.probabilities[:, np.newaxis]
    return summed(reachable(learner, rounds, look), gains_at, weights)


def comparators(n_actions: int) -> Array:
    """Every action, and three mixtures."""
    mixtures = np.random.default_rng(3).dirichlet(np.ones(n_actions), size=3)
    return np.concatenate([np.eye(n_actions), mixtures])


def comparator_tables(n_contexts: int, n_actions: int) -> Iterator[Array]:
    """Every deterministic policy π*(a|x), and three others."""
    for played in itertools.product(range(n_actions), repeat=n_contexts):
        yield np.eye(n_actions)[list(played)]
    rng = np.random.default_rng(4)
    yield from rng.dirichlet(np.ones(n_actions), size=(3, n_contexts))


def assert_at_most(found: float, bound: float) -> None:
    """found ≤ bound, up to rounding."""
    assert found <= bound + ROUNDING * max(1.0, abs(bound))
