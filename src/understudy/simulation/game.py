"""The game of the paper's section 2: `Game` is its setting, `play` its protocol.

`RandomStreams` holds the random numbers of a run, and `log_chunks` draws its log without a learner.
Only the referee sees r_t, the rewards of all actions. A learner sees the action and the reward of
the behavior policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from understudy.behaviors import Logged, choose
from understudy.constraints import (
    COUNT,
    PROBABILITIES,
    SEED,
    Array,
    array,
    enforce,
    having,
)
from understudy.contexts import POLICY, Contexts, FiniteContexts
from understudy.contexts import rows as policy_rows
from understudy.deprecated import OldName
from understudy.errors import InvalidArgument
from understudy.protocols import LEARNER, EventSpec, Learner
from understudy.simulation.adversaries import Adversary, Oblivious, Piecewise
from understudy.types import (
    Feedback,
    Integers,
    Log,
    Round,
    chunks,
    read_only,
    rounds_per_chunk,
    saved,
)

ROUNDING = 1e-9  # ⟨θ, φ⟩ may leave [0, 1] by rounding, never by this much
MOST_ROUNDS = 256  # in a chunk: with 256 actions, its tables have types.BLOCK numbers
CHOICE = array(
    "return one mean per action (or the entries of θ) from choose and between", dimensions=(1, 2)
)


@saved
@dataclass(frozen=True, eq=False)
class Game:
    """An adversary that sets the rewards, a behavior policy, the number of rounds, and contexts.

    `behavior` is one vector of probabilities; in a game with contexts it may also be a table with
    a row per context, or a function of contexts.

    >>> import understudy as us
    >>> adversary = us.adversaries.stationary([0.2, 0.5, 0.9])
    >>> game = us.Game(adversary=adversary, behavior=[0.5, 0.25, 0.25], rounds=100)
    >>> game.n_actions
    3
    """

    adversary: Adversary
    behavior: Any
    rounds: int
    contexts: Contexts | None = None
    CONSTRAINTS: ClassVar = {
        "adversary": having(
            "pass one of us.adversaries, or an object with the methods of us.adversaries.Adversary",
            "size",
            "bernoulli",
            "init",
            "choose",
            "observe",
        ),
        "rounds": COUNT,
        "contexts": having("pass one of us.contexts", "n_actions", "dimension").optional(),
    }

    def __post_init__(self) -> None:
        enforce(self)
        if isinstance(self.behavior, Logged):
            raise InvalidArgument(
                "behavior",
                self.behavior,
                "the referee has to draw the behavior's actions",
                "pass the probabilities that it plays with",
            )
        if self.contexts is None:
            object.__setattr__(self, "behavior", PROBABILITIES("behavior", self.behavior))
        elif not callable(self.behavior):
            object.__setattr__(self, "behavior", POLICY("behavior", self.behavior))
        if isinstance(self.contexts, FiniteContexts):
            every = np.arange(len(self.contexts.table))
            policy_rows(self.behavior, every, self.n_actions, "behavior")
        elif self.contexts is not None and np.ndim(self.behavior) == 1:
            policy_rows(self.behavior, np.zeros(1), self.n_actions, "behavior")
        self._check_adversary()

    @property
    def n_actions(self) -> int:
        return len(self.behavior) if self.contexts is None else self.contexts.n_actions

    @property
    def chunk_size(self) -> int:
        """How many rounds to draw at a time where tables (n, K) are needed."""
        return min(MOST_ROUNDS, rounds_per_chunk(self.n_actions))

    stretch = OldName()

    def means(self, chosen: Array, features: Array | None) -> Array:
        """Conditional means of the rewards, (n, K), from the adversary's choices, (n, K or d)."""
        size = self.n_actions if features is None else features.shape[-1]
        if chosen.shape[1:] != (size,):
            raise InvalidArgument(
                "adversary",
                f"a choice of shape {chosen.shape[1:]}",
                f"the game needs {size} numbers a round",
                "return one mean per action (or θ) from choose",
            )
        means = chosen if features is None else np.einsum("nd,nkd->nk", chosen, features)
        if not ((means >= -ROUNDING) & (means <= 1 + ROUNDING)).all():
            raise InvalidArgument(
                "adversary",
                f"mean rewards from {means.min():g} to {means.max():g}",
                "rewards lie in [0, 1]",
                "scale the means (or θ and the features) into [0, 1]",
            )
        return means.clip(0.0, 1.0)

    def means_between(self, start: int, stop: int, features: Array | None) -> Array:
        """Conditional means of rounds start+1 … stop, against an oblivious adversary."""
        assert isinstance(self.adversary, Oblivious)  # for the type checker
        chosen = CHOICE("adversary.between", self.adversary.between(start, stop))
        if len(chosen) != stop - start:
            raise InvalidArgument(
                "adversary.between",
                chosen.shape,
                f"{stop - start} rounds were asked for",
                CHOICE.remedy,
            )
        return self.means(chosen, features)

    def pieces_between(self, start: int, stop: int) -> tuple[Array, Integers]:
        """Conditional means of rounds start+1 … stop without contexts, a row per segment.

        Segment i begins after `starts[i]` of these rounds.
        """
        if type(self.adversary) is Piecewise:  # a subclass may override `between`
            values, starts = self.adversary.pieces(start, stop)
            return self.means(values, None), starts
        return self.means_between(start, stop, None), np.arange(stop - start)

    def _check_adversary(self) -> None:
        size = self.n_actions if self.contexts is None else self.contexts.dimension
        if self.adversary.size != size:
            what = "actions" if self.contexts is None else "features"
            raise InvalidArgument(
                "adversary",
                f"{self.adversary.size} numbers a round",
                f"the game has {size} {what}",
                f"make the adversary with {size}",
            )
        if not isinstance(self.adversary, Oblivious):
            return
        if self.adversary.rounds is not None and self.adversary.rounds < self.rounds:
            raise InvalidArgument(
                "rounds",
                self.rounds,
                f"the adversary was made for {self.adversary.rounds}",
                "play at most that many",
            )
        corners = CHOICE("adversary.corners", self.adversary.corners())
        if self.contexts is None:
            self.means(corners, None)
        elif isinstance(self.contexts, FiniteContexts):
            for theta in corners:
                every = np.broadcast_to(theta, (len(self.contexts.table), len(theta)))
                self.means(every, self.contexts.table)


def _stream(purpose: str) -> cached_property[Generator]:
    """A generator that is made when first used: not every game needs every stream."""
    return cached_property(lambda streams: Generator(streams.bits(purpose)))


class RandomStreams:
    """The random numbers of one run.

    A run is a pure function of (seed, run). No two purposes share a stream, so the numbers are the
    same for rounds drawn one by one or in chunks, and for any set of learners.
    """

    # The place of a purpose is part of its stream's key: add new ones at the end.
    PURPOSES = ("contexts", "behavior", "observed", "unobserved", "learner")
    contexts, behavior, observed, unobserved, learner = map(_stream, PURPOSES)

    def __init__(self, seed: int, run: int) -> None:
        self.seed, self.run = seed, run

    def restart(self, generator: Generator, purpose: str) -> None:
        """Set a generator to the start of a stream; this is cheaper than a new generator."""
        generator.bit_generator.state = self.bits(purpose).state

    def bits(self, purpose: str) -> PCG64:
        key = (self.run, self.PURPOSES.index(purpose))
        return PCG64(np.random.SeedSequence(self.seed, spawn_key=key))

    def rounds(self, game: Game) -> Iterator[tuple[NDArray[Any], Any, Array]]:
        """Draw contexts, features and behavior of every round; each array has one row."""
        for _, count in chunks(game.rounds, game.chunk_size):
            contexts, features, behavior = self.draw_contexts(game, count)
            for i in range(count):
                one = slice(i, i + 1)
                yield contexts[one], None if features is None else features[one], behavior[one]

    def draw_contexts(self, game: Game, rounds: int) -> tuple[NDArray[Any], Array | None, Array]:
        """Draw X_t of the next rounds, with φ(X_t, ·) and π_B(·|X_t)."""
        if game.contexts is None:
            behavior = np.broadcast_to(game.behavior, (rounds, game.n_actions))
            return np.zeros(rounds, dtype=np.int64), None, behavior
        contexts = game.contexts.draw(self.contexts, rounds)
        behavior = policy_rows(game.behavior, contexts, game.n_actions, "behavior")
        return contexts, game.contexts.features(contexts), behavior

    def draw_behavior_actions(self, behavior: Array) -> Integers:
        """Draw A^B_t ~ π_B(·|X_t)."""
        same_in_every_row = behavior.strides[0] == 0  # a broadcast vector: one cdf serves all
        probabilities = behavior[0] if same_in_every_row else behavior
        return choose(probabilities, self.behavior.random(len(behavior)))

    def draw_observed_rewards(self, game: Game, means: Array) -> Array:
        """Draw R^B_t = r_t(A^B_t) from the means of the A^B_t: all that a learner may see."""
        uniforms = self.observed.random(len(means))
        return (uniforms < means).astype(np.float64) if game.adversary.bernoulli else means

    def draw_rewards(self, game: Game, means: Array, actions: Integers, observed: Array) -> Array:
        """Draw r_t of all actions, for the referee; it agrees with the observed rewards."""
        if not game.adversary.bernoulli:
            return means
        rewards = (self.unobserved.random(means.shape) < means).astype(np.float64)
        rewards[np.arange(len(actions)), actions] = observed
        return rewards


def play(game: Game, learner: Learner[Any], *, seed: int = 0, run: int = 0) -> Iterator[Round]:
    """Play one game by the paper's protocol; yield the referee's record of every round.

    >>> import understudy as us
    >>> pi_b = us.behaviors.uniform(n_actions=3)
    >>> game = us.Game(adversary=us.adversaries.hiding(n_actions=3), behavior=pi_b, rounds=100)
    >>> rounds = list(play(game, us.exp3_ix(pi_b, horizon=100), seed=1))
    >>> len(rounds), rounds[0].policy.round(3).tolist()
    (100, [0.333, 0.333, 0.333])
    """
    check_player(game, learner)
    streams = RandomStreams(SEED("seed", seed), SEED("run", run))
    state, memory = learner.init(), game.adversary.init()
    for t, (context, features, behavior) in enumerate(streams.rounds(game), start=1):
        # 1. The adversary chooses the mean rewards; it knows all earlier rounds.
        chosen = CHOICE("adversary.choose", game.adversary.choose(memory, t))
        means = game.means(chosen[np.newaxis], features)
        # 2. The learner draws an action from its policy.
        policy = learner.policy(state, features[0] if learner.spec.features else None)
        action = choose(policy, streams.learner.random(1))
        # 3. The behavior policy draws its own action, and its reward is observed.
        behavior_action = streams.draw_behavior_actions(behavior)
        observed = streams.draw_observed_rewards(game, means[0, behavior_action])
        rewards = streams.draw_rewards(game, means, behavior_action, observed)
        played = Round(
            t=t,
            context=context[0],
            features=None if features is None else features[0],
            means=read_only(means[0]),
            rewards=read_only(rewards[0]),
            policy=read_only(policy),
            action=int(action[0]),
            behavior=behavior[0],
            behavior_action=int(behavior_action[0]),
        )
        yield played
        # 4. The learner earns r_t(A_t) unseen; it learns from the behavior's action and reward.
        state = learner.update(state, feedback_for(learner.spec, played))
        memory = game.adversary.observe(memory, played)


@dataclass(frozen=True, eq=False)
class LogChunk:
    """Some rounds: their log, and the rewards of all actions; row i holds from round starts[i] on.

    `behavior` is π_B, (K,), or (n, K) where there are contexts.
    """

    log: Log
    contexts: NDArray[Any]
    behavior: Array
    rewards: Array
    starts: Integers


def log_chunks(
    game: Game, streams: RandomStreams, *, size: int, all_rewards: bool
) -> Iterator[LogChunk]:
    """The run's log, at most that many rounds at a time.

    With `all_rewards` the rewards of every action are drawn in every round; else they are means.
    """
    for start, rounds in chunks(game.rounds, size):
        contexts, features, behavior = streams.draw_contexts(game, rounds)
        if features is None:
            rewards, starts = game.pieces_between(start, start + rounds)
            behavior_row = game.behavior
        else:
            rewards, starts = game.means_between(start, start + rounds, features), np.arange(rounds)
            behavior_row = behavior
        actions = streams.draw_behavior_actions(behavior)
        each = np.arange(rounds)
        row = np.searchsorted(starts, each, side="right") - 1
        observed = streams.draw_observed_rewards(game, rewards[row, actions])
        log = Log._of(actions, observed, behavior[each, actions], features)
        if all_rewards:
            rewards, starts = streams.draw_rewards(game, rewards[row], actions, observed), each
        yield LogChunk(log, contexts, behavior_row, rewards, starts)


def feedback_for(spec: EventSpec, record: Round) -> Feedback:
    """The feedback of a round that a learner's spec asks for, and no more."""
    b = record.behavior_action
    return Feedback(
        action=b,
        reward=float(record.rewards[b]),
        propensity=float(record.behavior[b]) if spec.propensities else None,
        features=record.features if spec.features else None,
    )


def check_player(game: Game, learner: Learner[Any]) -> None:
    """Raise `InvalidArgument` unless learner and game agree on actions, support and features."""
    if not isinstance(game, Game):
        raise InvalidArgument("game", game, "it is not a us.Game", "pass us.Game(...)")
    spec = LEARNER("learner", learner).spec
    if spec.n_actions != game.n_actions:
        raise InvalidArgument(
            "learner",
            f"{spec.n_actions} actions",
            f"the game has {game.n_actions}",
            f"make the learner for {game.n_actions} actions",
        )
    if spec.support is not None and game.contexts is None:
        (outside,) = np.nonzero((game.behavior > 0) & ~spec.support)
        if len(outside):
            raise InvalidArgument(
                "learner",
                f"q({int(outside[0])}) = 0",
                "it assumes that the behavior never plays this action, and the game's does",
                "make the learner with the behavior of the game, or with us.Logged",
            )
    if spec.features is None:
        return
    shape = None if game.contexts is None else (game.n_actions, game.contexts.dimension)
    if spec.features != shape:
        raise InvalidArgument(
            "learner",
            f"features of shape {spec.features}",
            f"the game has {'none' if shape is None else f'features of shape {shape}'}",
            "give the game contexts with these features, or play another learner",
        )
