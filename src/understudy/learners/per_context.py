"""One learner for each of a few contexts: tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.constraints import COUNT, ROUNDS, TUPLE, Array, constrained, enforce
from understudy.errors import InvalidArgument, InvalidEvent
from understudy.protocols import LEARNER, EventSpec, Learner, Recorder
from understudy.types import FEATURES, Integers, Log, saved

# A state per context, and an array per action in it: of 10 actions and 30 levels some 50 MB.
MOST_CONTEXTS = 10_000
REMEDY = "pass the number of the context, 0, 1, …, as its only feature"


@saved
@dataclass(frozen=True, eq=False)
class ContextStates:
    """The state of the learner of every context; None of a context that was not seen."""

    states: tuple[Any, ...]
    rounds: int
    CONSTRAINTS: ClassVar = {"states": TUPLE, "rounds": ROUNDS}


@saved
@dataclass(frozen=True, eq=False)
class PerContext(Learner[ContextStates]):
    """Plays as a learner that has seen the rounds of this context alone.

    The only feature of an event is the number of its context, 0 to `n_contexts` − 1.
    """

    learner: Learner[Any]
    n_contexts: int
    CONSTRAINTS: ClassVar = {"learner": LEARNER, "n_contexts": COUNT}

    def __post_init__(self) -> None:
        enforce(self)
        if self.n_contexts > MOST_CONTEXTS:
            reason = f"each has a state of its own, and {MOST_CONTEXTS:,} are the most"
            remedy = "join contexts, or use us.ridge on their labels"
            raise InvalidArgument("n_contexts", self.n_contexts, reason, remedy)
        if self.learner.spec.features is not None or self.learner.spec.outside:
            reason = "it must ignore contexts, and follow no policy that it does not know"
            raise InvalidArgument("learner", self.learner, reason, "pass a us.prod_grid, say")

    @cached_property
    def spec(self) -> EventSpec:
        return replace(self.learner.spec, features=(1,))

    @property
    def horizon(self) -> int | None:
        """None: the rounds of a context are not known beforehand."""
        return None

    @property
    def order_dependence(self) -> str | None:
        return self.learner.order_dependence

    @cached_property
    def _unseen(self) -> Any:
        return self.learner.init()

    def init(self) -> ContextStates:
        return ContextStates((None,) * self.n_contexts, 0)

    def state_of(self, state: ContextStates, context: int) -> Any:
        """The state of the learner of one context."""
        own = state.states[context]
        return self._unseen if own is None else own

    def accepts(self, state: ContextStates) -> bool:
        return (
            isinstance(state, ContextStates)
            and len(state.states) == self.n_contexts
            and all(one is None or self.learner.accepts(one) for one in state.states)
        )

    def is_possible(self, state: ContextStates) -> bool:
        seen = [one for one in state.states if one is not None]
        return sum(map(self.learner.rounds, seen)) == state.rounds and all(
            map(self.learner.is_possible, seen)
        )

    def add_states(self, first: ContextStates, second: ContextStates) -> ContextStates:
        states = tuple(
            two if one is None else one if two is None else self.learner.add_states(one, two)
            for one, two in zip(first.states, second.states, strict=True)
        )
        return ContextStates(states, first.rounds + second.rounds)

    def check_log(self, log: Log) -> None:
        super().check_log(log)
        assert log.features is not None  # the spec requires them
        wrong = self._wrong(log.features[:, 0])
        if wrong.any():
            t = int(wrong.argmax())
            reason = f"contexts are numbered 0 to {self.n_contexts - 1}"
            raise InvalidEvent(f"features of event {t}", float(log.features[t, 0]), reason, REMEDY)

    def _wrong(self, numbers: Array) -> Any:
        return (numbers < 0) | (numbers >= self.n_contexts) | (numbers != np.floor(numbers))

    def policy(self, state: ContextStates, features: ArrayLike | None = None) -> Array:
        self.check_state(state)
        x = FEATURES("features", features)
        if x.shape != (1,) or self._wrong(x).any():
            reason = f"contexts are numbered 0 to {self.n_contexts - 1}"
            raise InvalidArgument("features", x, reason, REMEDY)
        return self.learner.policy(self.state_of(state, int(x[0])))

    def variants_at(self, state: ContextStates, features: Array) -> Array:
        numbers, each = np.unique(features[:, 0].astype(np.int64), return_inverse=True)
        policies = np.stack([self.learner.policy(self.state_of(state, int(x))) for x in numbers])
        return np.asarray(policies[each.reshape(-1), np.newaxis])

    def evaluator(self, state: ContextStates) -> Callable[[Array], Array]:
        @functools.cache
        def policy_of(number: float) -> Array:
            return self.learner.policy(self.state_of(state, int(number)))

        shape = (-1, 1, self.spec.n_actions)
        return lambda features: np.array([policy_of(x) for x in features[:, 0].tolist()]).reshape(
            shape
        )

    def advance(self, state: ContextStates, log: Log, recorder: Recorder) -> ContextStates:
        state, found = self.advance_variants(state, log, whole=recorder.whole)
        recorder.add_rows(found[:, 0])
        return state

    def advance_variants(
        self, state: ContextStates, log: Log, *, whole: bool
    ) -> tuple[ContextStates, Array]:
        assert log.features is not None  # the spec requires them
        cells = log.features[:, 0].astype(np.int64)
        order = np.argsort(cells, kind="stable")
        numbers, starts = np.unique(cells[order], return_index=True)
        found = np.empty((len(log), 1, self.spec.n_actions if whole else 1))
        states = list(state.states)
        edges = [*starts.tolist(), len(log)]
        for number, first, last in zip(numbers.tolist(), edges[:-1], edges[1:], strict=True):
            rows = order[first:last]
            part = _rows(self.learner.spec.visible(log), rows)
            own = self.state_of(state, number)
            states[number], found[rows] = self.learner.advance_variants(own, part, whole=whole)
        return ContextStates(tuple(states), state.rounds + len(log)), found


def _rows(log: Log, rows: Integers) -> Log:
    """Some rows of a log."""
    q = None if log.propensities is None else log.propensities[rows]
    return Log._of(log.actions[rows], log.rewards[rows], q)


@constrained(learner=LEARNER, n_contexts=COUNT)
def per_context(learner: Learner[Any], *, n_contexts: int) -> PerContext:
    """One learner for each of a few contexts, which are numbered from 0.

    Each context has the guarantee of the learner, over its own rounds, and `us.certify_by` gives
    each a certificate of its own. The number of the context is the only feature of an event.

    Args:
        learner: the learner of each context; it ignores contexts, and needs no horizon.
        n_contexts: how many contexts there are.

    >>> import understudy as us
    >>> learner = us.per_context(us.exp3_ix([0.5, 0.5], eta=0.5), n_contexts=2)
    >>> event = us.Feedback(action=0, reward=1.0, features=[1])
    >>> state = learner.update(learner.init(), event)
    >>> learner.policy(state, [0]).tolist(), learner.policy(state, [1]).round(3).tolist()
    ([0.5, 0.5], [0.661, 0.339])
    """
    return PerContext(learner, n_contexts)
