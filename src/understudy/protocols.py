"""The protocols of learners and estimators, the spec of their events, and recorders of a replay.

A learner defines `spec`, `init`, `policy` and `advance`. All its other methods follow from these
and are written here once.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.behaviors import (
    LEAST_DECLARED,
    LEAST_REMEDY,
    SLACK,
    Behavior,
    Logged,
    inverse_of,
    sum_slack,
)
from understudy.constraints import SMALLEST_PROBABILITY, Array, Constraint, having
from understudy.deprecated import OldName, adopt_old_members, old_module_names
from understudy.errors import BrokenLaw, InvalidArgument, InvalidEvent, NotMergeable
from understudy.types import (
    EXPERTS_REMEDY,
    FEATURES,
    PROPENSITY_REMEDY,
    VECTORS_REMEDY,
    Feedback,
    Integers,
    Log,
    Trace,
    expand,
    kernel_view,
    one_event,
    read_only,
    segments,
)

State = TypeVar("State")
NOTHING: Array = np.empty(0)
PRODUCTION = "production"  # the behavior policy, as an expert that a learner may follow


@dataclass(frozen=True, eq=False)
class EventSpec:
    """The fields that an event must have for a learner, and the check of them.

    `support` marks the actions that the behavior can play at all; `features` is the shape of
    one round's features. `unread` and `unseen` are remedies: for propensities that the learner
    does not read, and for an action that was played though its probability is 0.

    `outside` names policies that a learner follows in part and knows at logged actions only:
    `PRODUCTION`, whose probability of the logged action is the propensity, and those whose
    probabilities are the columns of `Log.experts`, in this order. To play, the learner must be told
    their probabilities of all actions. `behavior` is that of the events, if it is known.
    """

    n_actions: int
    propensities: bool = False
    support: NDArray[np.bool_] | None = None
    features: tuple[int, ...] | None = None
    unread: str = "leave it out, or make the learner with us.Logged(n_actions=K) to use it"
    unseen: str = "correct pi_b, or use us.Logged or exp3_ix_unknown if it is not known"
    outside: tuple[str, ...] = ()
    behavior: Behavior | None = None

    @staticmethod
    def for_behavior(behavior: Behavior) -> EventSpec:
        """The spec of events of a known behavior, or of one that is logged with each event."""
        if isinstance(behavior, Logged):
            return EventSpec(behavior.n_actions, propensities=True, behavior=behavior)
        return EventSpec(len(behavior), support=behavior > 0, behavior=behavior)

    @cached_property
    def inverse(self) -> Array | None:
        """1/q of every action if the behavior is a vector."""
        return None if self.behavior is None else inverse_of(self.behavior)

    def check(self, log: Log) -> None:
        """Raise `InvalidEvent` at the first event that does not fit."""
        if not isinstance(log, Log):
            raise InvalidEvent(
                "log", log, "it is not a us.Log", "pass us.Log(actions=..., rewards=...)"
            )
        self._check_actions(log.actions)
        if self.propensities and log.propensities is None:
            beside = "" if log.propensity_vectors is None else ", beside the vectors"
            raise InvalidEvent(
                "propensity",
                None,
                "the behavior is us.Logged, so every event must carry its own propensity",
                f"{PROPENSITY_REMEDY}: us.Log(propensities=...), us.Feedback(propensity=...)"
                f"{beside}",
            )
        for field, column in (
            ("propensity", log.propensities),
            ("propensity_vectors", log.propensity_vectors),
        ):
            if not self.propensities and column is not None:
                raise InvalidEvent(field, column[:3], "it is not read here", self.unread)
        if isinstance(self.behavior, Logged) and log.propensities is not None:
            self._check_propensities(self.behavior, log.propensities)
        if log.propensity_vectors is not None:
            self._check_vectors(log, log.propensity_vectors)
        if log.features is not None or self.features is not None:
            self._check_features(log.features)
        if log.experts is not None or self.columns:
            self._check_experts(log.experts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The outside policies that have a column of `Log.experts`."""
        return tuple(name for name in self.outside if name != PRODUCTION)

    def outside_column(self, name: str, log: Log) -> Array:
        """The probability of the logged actions under an outside policy, (n,)."""
        if name == PRODUCTION:
            assert log.propensities is not None  # `check` requires them, and the experts
            return log.propensities
        assert log.experts is not None
        return np.asarray(log.experts[:, self.columns.index(name)])

    def visible(self, log: Log) -> Log:
        """The log with the columns that this spec has, and no others."""
        return log.visible(
            propensities=self.propensities,
            features=self.features is not None,
            experts=bool(self.columns),
        )

    def _check_propensities(self, behavior: Logged, q: Array) -> None:
        """Raise `InvalidEvent` at the first propensity that contradicts the declared least one."""
        low, high = behavior.range
        wrong = (q < low) | (q > high)  # not where it is nan
        if wrong.any():
            t, f = int(np.argmax(wrong)), behavior.least_propensity
            reason = LEAST_DECLARED.format(f)
            if q[t] > high and f is not None:
                most = 1.0 - (self.n_actions - 1) * f  # without the slack of `range`
                reason += f", which leaves at most {most:.6g} for one action"
            raise InvalidEvent(f"propensity of event {t}", float(q[t]), reason, LEAST_REMEDY)

    def _check_vectors(self, log: Log, vectors: Array) -> None:
        """Raise `InvalidEvent` at the first vector that is none of its event's."""
        n, K = len(log), self.n_actions
        if vectors.shape != (n, K):
            reason = f"{n} events of {K} actions need ({n}, {K})"
            raise InvalidEvent("propensity_vectors", vectors.shape, reason, VECTORS_REMEDY)
        assert log.propensities is not None  # `check` requires them
        q, own = log.propensities, vectors[np.arange(n), log.actions]
        sums, least = vectors.sum(axis=1), vectors.min(axis=1)
        strays, differs = np.abs(sums - 1.0) > sum_slack(K), np.abs(own - q) > SLACK
        wrong = strays | differs | (own < SMALLEST_PROBABILITY)
        if isinstance(self.behavior, Logged):
            wrong |= least < self.behavior.range[0]
        if wrong.any():
            t, remedy = int(np.argmax(wrong)), VECTORS_REMEDY
            if strays[t]:
                reason = f"it sums to {sums[t]:.6g}"
            elif differs[t] or own[t] < SMALLEST_PROBABILITY:
                reason = f"it gives the logged action {own[t]:.6g}, whose propensity is {q[t]:.6g}"
            else:
                declared = getattr(self.behavior, "least_propensity", None)
                reason = f"it gives an action {least[t]:.6g}, and {LEAST_DECLARED.format(declared)}"
                remedy = LEAST_REMEDY
            vector = vectors[t, :4].tolist()
            raise InvalidEvent(f"propensity vector of event {t}", vector, reason, remedy)

    def _check_experts(self, experts: Array | None) -> None:
        found, wanted = 0 if experts is None else experts.shape[1], len(self.columns)
        if found != wanted:
            if not wanted:
                reason, remedy = "this learner has no outside experts", "leave them out"
            else:
                reason = f"each event needs {wanted}: {', '.join(self.columns)}"
                remedy = EXPERTS_REMEDY
            raise InvalidEvent("experts", found, reason, remedy)

    def _check_actions(self, actions: Integers) -> None:
        if (actions >= self.n_actions).any():
            t = int(np.argmax(actions >= self.n_actions))
            raise InvalidEvent(
                f"action of event {t}",
                int(actions[t]),
                f"there are {self.n_actions} actions, counted from 0",
                f"pass an index from 0 to {self.n_actions - 1}",
            )
        if self.support is not None and not self.support[actions].all():
            t = int(np.argmin(self.support[actions]))
            raise InvalidEvent(
                f"action of event {t}",
                int(actions[t]),
                "the behavior policy plays it with probability 0, yet it was played",
                self.unseen,
            )

    def _check_features(self, features: Array | None) -> None:
        found = None if features is None else features.shape[1:]
        if found == self.features:
            return
        if self.features is None and features is not None:
            raise InvalidEvent(
                "features", features.shape, "this learner has no features", "leave them out"
            )
        reason = f"each round needs features of shape {self.features}"
        raise InvalidEvent("features", found, reason, FEATURES.remedy)


class Recorder:
    """Records a function of the policies π_t along a log; this base records nothing.

    `Learner.advance` shows a recorder every π_t before it learns from round t, in the order of
    rounds. A learner in Python calls `add`. A compiled one runs the kernel that `kernel` names,
    which fills or reads the arrays of `kernel_arguments`: so the probability of the logged action,
    all that `replay` needs, costs O(1) a round and not O(K).
    """

    wants_policies: ClassVar[bool] = False
    one_sum: ClassVar[bool] = False  # its bits depend on how a learner cuts the log into chunks
    kernel: ClassVar[str] = "replay"
    recorded = 0
    production: Array | None = None  # π_B(·|X_t) of every round, (n, K), if it was given

    @property
    def whole(self) -> bool:
        """Whether it records more of a policy than the probability of the logged action."""
        return self.kernel != ActionProbabilities.kernel

    def add(self, policies: Array) -> None:
        """Record the policy of the next round, (K,), or those of the next rounds, (n, K)."""

    def add_rows(self, rows: Array, follows: Array | float = 0.0) -> None:
        """Record policies (n, K) if `whole`, else probabilities of logged actions, (n, 1).

        Of each round a share `follows` does as production does.
        """
        if self.whole:
            self.add(rows)
        else:
            self.add_played(rows[:, 0], follows)

    def add_played(self, played: Array, follows: Array | float) -> None:
        """Record the probabilities of logged actions of policies that are not made in full."""

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        """The arrays of the next rounds that the kernel takes.

        Of `replay`: the probability of the logged action, v (`Trace.inverse`), the largest π v and
        the share of production; an empty v if the last two are not wanted.
        """
        return np.empty(rounds), NOTHING, NOTHING, NOTHING

    def add_found(self, found: Any) -> None:
        """Record what the kernel returned for these rounds beside the state."""

    def production_of(self, rounds: int) -> Array:
        """π_B of the next rounds, as it was given, or `InvalidArgument`."""
        if self.production is None:
            raise InvalidArgument(
                PRODUCTION,
                None,
                "the learner follows production in part, and the log has its probability of the "
                "logged action alone",
                "pass production=, π_B(·|X_t) of every round, to learner.policies",
            )
        return self.production[self.recorded : self.recorded + rounds]

    def _next(self, rounds: int) -> slice:
        start = self.recorded
        self.recorded += rounds
        return slice(start, start + rounds)


class ActionProbabilities(Recorder):
    """π_t(A_t), the probability of the logged action, in `probability`; and what `Trace` has."""

    wants_policies = True

    def __init__(self, actions: Integers, spec: EventSpec) -> None:
        self.actions, self.inverse = actions, spec.inverse
        self.probability, self.largest = np.empty(len(actions)), np.empty(len(actions))
        self.follows = np.zeros(len(actions))
        v = np.ones(spec.n_actions) if spec.inverse is None else spec.inverse
        self.factors, self.crude = kernel_view(v), float(v.max())

    def add(self, policies: Array) -> None:
        rows = np.atleast_2d(policies)
        part = self._next(len(rows))
        self.probability[part] = rows[np.arange(len(rows)), self.actions[part]]
        if math.isfinite(self.crude):
            self.largest[part] = (rows * self.factors).max(axis=1)
        else:  # 0 times inf
            products = np.where(rows > 0.0, rows, 0.0) * np.where(rows > 0.0, self.factors, 0.0)
            self.largest[part] = products.max(axis=1)

    def add_played(self, played: Array, follows: Array | float) -> None:
        part = self._next(len(played))
        self.probability[part], self.follows[part] = played, follows
        rest = 1.0 - self.follows[part]
        self.largest[part] = np.multiply(
            rest, self.crude, where=rest > 0.0, out=np.zeros(len(rest))
        )

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        part = self._next(rounds)
        return self.probability[part], self.factors, self.largest[part], self.follows[part]

    def trace(self, past_horizon: int, n_actions: int) -> Trace:
        """The trace of the recorded rounds."""
        probability, largest, follows = map(
            read_only, (self.probability, self.largest, self.follows)
        )
        return Trace(probability, past_horizon, n_actions, largest, follows, self.inverse)


class AllPolicies(Recorder):
    """Every π_t in full, in `policies`, (n, K)."""

    wants_policies = True
    kernel = "policies"

    def __init__(self, rounds: int, n_actions: int, production: Array | None = None) -> None:
        self.policies = np.empty((rounds, n_actions))
        self.production = production

    def add(self, policies: Array) -> None:
        rows = np.atleast_2d(policies)
        part = self._next(len(rows))
        if rows.shape == self.policies.shape:  # all rounds at once: no copy
            self.policies = rows
        else:
            self.policies[part] = rows

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        return (self.policies[self._next(rounds)],)


class ExpectedReward(Recorder):
    """Σ_t ⟨π_t, r_t⟩, in `total`; row i of `rewards` holds from round starts[i] on."""

    wants_policies = True
    one_sum = True
    kernel = "expected_reward"

    def __init__(self, rewards: Array, starts: Integers) -> None:
        self.rewards, self.starts = rewards, starts
        self.total = 0.0

    def add(self, policies: Array) -> None:
        rows = np.atleast_2d(policies)
        rewards, starts = self.rewards_of(len(rows))
        self.total += float((rows * expand(rewards, starts, len(rows))).sum())

    def kernel_arguments(self, rounds: int) -> tuple[Array, ...]:
        rewards, starts = self.rewards_of(rounds)
        return kernel_view(rewards), kernel_view(starts)

    def add_found(self, found: Any) -> None:
        self.total += float(found)

    def rewards_of(self, rounds: int) -> tuple[Array, Integers]:
        """The rewards of the next rounds, which count as recorded."""
        part = self._next(rounds)
        return segments(self.rewards, self.starts, part.start, rounds)


NO_RECORDING = Recorder()  # for `update`, which wants the next state alone


class CompiledPath(enum.Flag):
    """The simulations of a learner that compiled code alone can play."""

    NONE = 0
    LOGS = enum.auto()  # `advance` is compiled, and `expected_reward` with it
    WHOLE_GAMES = enum.auto()  # the gain of an event depends on nothing but the event
    ADAPTIVE = enum.auto()  # `play_adaptive`: rewards may depend on the learner's past


class Learner(Protocol[State]):
    """A policy that learns from the actions and rewards of a behavior policy.

    A subclass defines `spec`, `init`, `policy` and `advance`; all else is given. A learner is a
    value and so is its state: methods are pure, and none draws a random number. `us.check_learner`
    tests the laws that every learner obeys.

    The state counts its rounds in `state.rounds`, or the learner overrides `rounds`. A learner
    whose states add up overrides `order_dependence` and `add_states`. A learner that was tuned for
    a number of rounds names it `horizon`.
    """

    # What a learner is.

    @property
    def spec(self) -> EventSpec:
        """What an event must look like."""
        raise NotImplementedError("a learner defines spec")

    def init(self) -> State:
        """The state before round 1."""
        raise NotImplementedError("a learner defines init")

    def policy(self, state: State, features: ArrayLike | None = None) -> Array:
        """π_t, the probability of each action in the next round."""
        raise NotImplementedError("a learner defines policy")

    def advance(self, state: State, log: Log, recorder: Recorder) -> State:
        """The state after a chunk of log; `recorder` gets π_t of each round before it is learned.

        State and log were checked before. Any way to cut a log into chunks gives the same bits.
        """
        raise NotImplementedError("a learner defines advance")

    # What follows from it.

    def update(self, state: State, feedback: Feedback) -> State:
        """The state after one more round."""
        self.check_state(state)
        log = one_event(feedback)
        self.check_log(log)
        return self.advance(state, log, NO_RECORDING)

    def replay(self, state: State, log: Log) -> tuple[State, Trace]:
        """The state after a whole log, bit for bit that of `update` on each event in turn."""
        self.check_state(state)
        self.check_log(log)
        recorder = ActionProbabilities(log.actions, self.spec)
        state = self._advance_recorded(state, log, recorder)
        past = min(self.past_horizon(state), len(log))
        return state, recorder.trace(past, self.spec.n_actions)

    def policies(self, state: State, log: Log) -> tuple[State, Array]:
        """Like `replay`, with every π_t in full: an array (n, K)."""
        self.check_state(state)
        self.check_log(log)
        recorder = AllPolicies(len(log), self.spec.n_actions)
        state = self._advance_recorded(state, log, recorder)
        return state, recorder.policies

    def expected_reward(
        self, state: State, log: Log, rewards: Array, starts: Integers
    ) -> tuple[State, float]:
        """Like `replay`, with Σ_t ⟨π_t, r_t⟩ in place of a trace; a game calls it with its own log.

        Row i of `rewards` holds from event starts[i] on.
        """
        recorder = ExpectedReward(rewards, starts)
        state = self._advance_recorded(state, log, recorder)
        return state, recorder.total

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the policies that this learner makes of one state: mostly one, without."""
        return ("",)

    def advance_variants(self, state: State, log: Log, *, whole: bool) -> tuple[State, Array]:
        """Like `advance`: before each round π_t of every variant, (n, variants, K) if `whole`,

        else its probability of the logged action, (n, variants, 1).
        """
        if whole:
            everything = AllPolicies(len(log), self.spec.n_actions)
            state = self._advance_recorded(state, log, everything)
            return state, everything.policies[:, np.newaxis]
        played = ActionProbabilities(log.actions, self.spec)
        state = self._advance_recorded(state, log, played)
        return state, played.probability[:, np.newaxis, np.newaxis]

    def policies_at(self, state: State, features: ArrayLike | None, rows: int = 1) -> Array:
        """π(·|x) of many contexts at one state, (n, K): `policy` of each, bit for bit.

        A learner without contexts plays the same in `rows` rounds.
        """
        if self.spec.features is None:
            return np.tile(self.policy(state, features), (rows, 1))
        found = [self.policy(state, x) for x in np.asarray(features, dtype=np.float64)]
        return np.array(found).reshape(-1, self.spec.n_actions)

    def variants_at(self, state: State, features: Array) -> Array:
        """π(·|x) of every variant for checked contexts, given as (n, …): (n, variants, K)."""
        return np.stack([self.policy(state, x) for x in features])[:, np.newaxis]

    def evaluator(self, state: State) -> Callable[..., Array]:
        """`variants_at` of one checked state as a function of contexts, for many calls.

        A learner overrides it to compute once what does not depend on the context. A learner
        without contexts takes None, and returns one row.
        """
        if self.spec.features is None:
            policy = self.policy(state)[np.newaxis, np.newaxis]
            return lambda _: policy
        return lambda features: self.variants_at(state, features)

    def known_at(self, state: State, features: Array | None, rows: int = 1) -> tuple[Array, Array]:
        """π(·|x) less the parts of outside policies, (n, K), and the share of each of these.

        The shares are in the order of `spec.outside`. A learner without any returns its policy.
        """
        return self.policies_at(state, features, rows), np.empty(0)

    def trace_at(self, state: State, log: Log) -> Trace:
        """The trace of one state, which does not learn from the log."""
        known, shares = self.known_at(state, log.features, len(log))
        played = known[np.arange(len(log)), log.actions]
        follows, rest = 0.0, 0.0  # the shares of production, and of experts that are columns
        for name, share in zip(self.spec.outside, shares.tolist(), strict=True):
            played += share * self.spec.outside_column(name, log)
            if name == PRODUCTION:
                follows = share
            else:
                rest += share
        return Trace(
            read_only(np.minimum(1.0, played)),
            0,
            self.spec.n_actions,
            read_only(known.max(axis=1, initial=0.0) + rest),
            read_only(np.full(len(log), follows)),
        )

    def rounds(self, state: State) -> int:
        """How many rounds the state has seen."""
        return int(state.rounds)  # type: ignore[attr-defined] # or the learner overrides this

    def past_horizon(self, state: State) -> int:
        """How many rounds came after the horizon that the learner was tuned for."""
        horizon: int | None = getattr(self, "horizon", None)
        return 0 if horizon is None else max(0, self.rounds(state) - horizon)

    @property
    def order_dependence(self) -> str | None:
        """Why the state depends on the order of events, or None: then states can be merged."""
        return "this learner does not say how its states add up"

    def merge(self, first: State, second: State) -> State:
        """The state of a log whose two parts were learned apart, or `NotMergeable`."""
        self.refuse_order_dependence()
        self.validate(first)
        self.validate(second)
        return self.add_states(first, second)

    def add_states(self, first: State, second: State) -> State:
        """`merge` of checked states, of a learner without order dependence."""
        del first, second
        raise NotMergeable(f"{type(self).__name__} does not define add_states")

    def refuse_order_dependence(self) -> None:
        """Raise `NotMergeable` if the state depends on the order of events."""
        if self.order_dependence is not None:
            raise NotMergeable(
                f"{self.order_dependence}; replay the logs one after the other instead"
            )

    def accepts(self, state: State) -> bool:
        """Whether the state has the class of this learner's states; override it to check shapes."""
        return isinstance(state, type(self.init()))

    def is_possible(self, state: State) -> bool:
        """Whether the numbers of a state that it `accepts` can be this learner's."""
        del state
        return True

    def validate(self, state: State) -> None:
        """Raise `InvalidArgument` if a state that comes from outside cannot be this learner's."""
        self.check_state(state)
        if not self.is_possible(state):
            raise self._foreign_state(state)

    def check_state(self, state: State) -> None:
        """Raise `InvalidArgument` if `accepts` refuses the state: asked before each use."""
        if not self.accepts(state):
            raise self._foreign_state(state)

    def _foreign_state(self, state: State) -> InvalidArgument:
        """The error for a state that cannot be this learner's."""
        spec = self.spec
        of = f"{spec.n_actions} actions" if spec.features is None else f"features {spec.features}"
        return InvalidArgument(
            "state",
            state,
            f"it is not a state of this learner of {of}",
            "start from learner.init(), or load the learner with its state",
        )

    def check_log(self, log: Log) -> None:
        """Raise `InvalidEvent` at the first event that this learner cannot learn from."""
        self.spec.check(log)

    @property
    def compiled_paths(self) -> CompiledPath:
        """What `us.simulate` can play by compiled code alone.

        A class declares it as `COMPILED`. No subclass inherits it: it may compute something else.
        """
        declared: CompiledPath = vars(type(self)).get("COMPILED", CompiledPath.NONE)
        return declared

    def _advance_recorded(self, state: State, log: Log, recorder: Recorder) -> State:
        state = self.advance(state, log, recorder)
        if recorder.recorded != len(log):
            raise BrokenLaw(f"advance recorded {recorder.recorded} policies of {len(log)} rounds")
        return state

    if not TYPE_CHECKING:  # no learner has to define them
        form, earn = OldName(), OldName()


class Estimator(Protocol):
    """Turns a chunk of log into gains: how much the score of each played action grows.

    `memory` is what the estimator keeps of the past; `order_dependence` says why states cannot be
    merged, or is None if the gain of an event depends on nothing but the event.
    """

    @property
    def spec(self) -> EventSpec: ...

    @property
    def order_dependence(self) -> str | None: ...

    def init(self) -> Integers: ...

    def accepts_memory(self, memory: Integers, rounds: int) -> bool:
        """Whether this can be its memory after that many rounds."""
        ...

    def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
        """The gain of every event, when `start` rounds were played before the chunk."""
        ...


def _having_or_old(base: type, remedy: str, *names: str) -> Constraint:
    """`having`, where a class of 0.5 may have the old names of its members."""
    members = having(remedy, *names)

    def parse(value: Any) -> Any:
        adopt_old_members(type(value), base, getattr(value, "__dict__", ()))
        return members.parse(value)

    return Constraint(remedy, parse, members.wrong)


LEARNER = _having_or_old(
    Learner, "pass a learner, such as us.exp3_ix(...)", "spec", "policies", "update"
)
ESTIMATOR = _having_or_old(
    Estimator, "pass one of us.estimators", "spec", "gains", "order_dependence"
)


if not TYPE_CHECKING:
    __getattr__ = old_module_names(__name__, {"Form": EventSpec})
