"""Experts of `us.exp4` that are no learners of this library, and the checks of all experts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from understudy.behaviors import Behavior, Logged, n_actions_of
from understudy.constraints import (
    COUNT,
    N_ACTIONS,
    Array,
    Checked,
    Constraint,
    ConstraintViolation,
    array,
)
from understudy.errors import InvalidArgument, first_line
from understudy.learners.feature_maps import check_contexts
from understudy.protocols import PRODUCTION, EventSpec, Learner, Recorder
from understudy.types import Log, saved

P = ParamSpec("P")
R = TypeVar("R")
TOLERANCE = 1e-6  # of the sum of a model's probabilities, which may be float32
REMEDY = "pass learners, us.learners.Outside or us.learners.Model by name"


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConstraintViolation("it must be text")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
        raise ConstraintViolation("it must be a tuple of texts")
    if len(set(value)) < len(value):
        raise ConstraintViolation("each needs a name of its own")
    return value


def _model(value: Any) -> Any:
    if isinstance(value, type) or not any(
        hasattr(value, name) for name in ("probabilities", "predict_proba")
    ):
        raise ConstraintViolation("it has neither probabilities(x) nor predict_proba(X)")
    return value


NAME = Constraint("pass the name of a column of Log.experts", _name, (None, 3, "", ["a"]))
NAMES = Constraint("pass a name for every expert", _names, (None, "ab", (1,), ("a", "a"), {"a"}))
MODEL = Constraint(
    "pass an object with probabilities(x) or predict_proba(X)", _model, (None, "text", 3, [], {})
)


@saved
@dataclass(frozen=True)
class Outside(Checked):
    """A policy that is known at the logged actions only; events carry its probability of them.

    `production` is the behavior policy, whose probability is the propensity. Any other name is a
    column of `Log.experts`.
    """

    name: str
    CONSTRAINTS: ClassVar = {"name": NAME}


@dataclass(frozen=True, eq=False)
class Model(Checked, Learner[int]):
    """A model of your own as a learner that learns nothing; its state counts rounds.

    The model has `probabilities(x)`, of one context (p,), or `predict_proba(X)`, of contexts
    (n, p), as in scikit-learn. It must not have been fitted to rows of the log that it is an expert
    for: then its probabilities are not predictable, which no check can notice. Where a product of
    matrices rounds many contexts otherwise than one, the last bits depend on the batch.
    """

    model: Any
    n_actions: int
    dimension: int
    CONSTRAINTS: ClassVar = {"model": MODEL, "n_actions": N_ACTIONS, "dimension": COUNT}
    NOT_SAVED: ClassVar = (
        "put its probabilities of the logged actions into Log.experts, and pass us.learners.Outside"
    )

    @cached_property
    def spec(self) -> EventSpec:
        return EventSpec(self.n_actions, features=(self.dimension,))

    def init(self) -> int:
        return 0

    def rounds(self, state: int) -> int:
        return state

    def accepts(self, state: int) -> bool:
        return isinstance(state, int) and not isinstance(state, bool) and state >= 0

    def policy(self, state: int, features: ArrayLike | None = None) -> Array:
        self.check_state(state)
        shape = (self.dimension,)
        return np.asarray(self._probabilities(check_contexts(features, shape, single=True))[0])

    def advance(self, state: int, log: Log, recorder: Recorder) -> int:
        if recorder.wants_policies:
            assert log.features is not None  # `EventSpec.check` requires them
            recorder.add(self._probabilities(log.features))
        return state + len(log)

    def variants_at(self, state: int, features: Array) -> Array:
        del state
        return self._probabilities(features)[:, np.newaxis]

    def _probabilities(self, contexts: Array) -> Array:
        if not len(contexts):
            return np.empty((0, self.n_actions))  # scikit-learn refuses to predict nothing
        remedy = f"return {self.n_actions} probabilities that sum to 1 for each context"
        probabilities = array(remedy, dimensions=(2,), low=0.0, high=1.0 + TOLERANCE)
        if hasattr(self.model, "predict_proba"):
            found = self._by_action(probabilities("model", self._ask("predict_proba", contexts)))
        else:
            found = probabilities("model", [self._ask("probabilities", x) for x in contexts])
        if found.shape != (len(contexts), self.n_actions):
            reason = f"it returned {found.shape} probabilities, for {len(contexts)} contexts"
            raise InvalidArgument("model", self.model, reason, remedy)
        totals = found.sum(axis=1, keepdims=True)
        if np.abs(totals - 1.0).max() > TOLERANCE:
            worst = float(totals.flat[int(np.abs(totals - 1.0).argmax())])
            reason = f"probabilities sum to {worst:.6g}"
            raise InvalidArgument("model", self.model, reason, remedy)
        return np.asarray(found / totals)

    def _ask(self, method: str, contexts: Array) -> Any:
        """What the model returns; `InvalidArgument`, caused by the model's error, if it raises."""
        try:
            return getattr(self.model, method)(contexts)
        except MemoryError:
            raise  # no fault of the model
        except Exception as error:
            what = f"{type(error).__name__} ({first_line(error)})"
            raise InvalidArgument(
                "model",
                self.model,
                f"{method} raised {what} for contexts of shape {contexts.shape}",
                f"check that it is fitted and takes contexts of {self.dimension} numbers, or pass "
                "the dimension that it takes",
            ) from error

    def _by_action(self, found: Array) -> Array:
        """A column per action: a classifier has one for each class that its data had."""
        classes = getattr(self.model, "classes_", None)
        if classes is None:
            return found
        known = np.asarray(classes)
        indices = known.dtype.kind in "iu" and known.shape == found.shape[1:]
        if not indices or known.min() < 0 or known.max() >= self.n_actions:
            reason = f"its classes are {known[:5].tolist()}, …"
            remedy = f"fit it to the indices of actions, 0 to {self.n_actions - 1}"
            raise InvalidArgument("model", self.model, reason, remedy)
        whole = np.zeros((len(found), self.n_actions))
        whole[:, known] = found
        return whole


def naming_expert(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """The function of an expert; its errors also name the expert, as a mixture calls it."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InvalidArgument as error:
            error.argument = f"experts[{name!r}].{error.argument}"
            raise

    return call


def has_columns(experts: Iterable[Any]) -> bool:
    """Whether an expert is a column of the log: the policy behind it is seen in part, or is none.

    >>> has_columns([Outside(PRODUCTION)]), has_columns([Outside("model")])
    (False, True)
    """
    return any(isinstance(one, Outside) and one.name != PRODUCTION for one in experts)


def labels_of(names: Sequence[str], experts: Sequence[Any]) -> tuple[str, ...]:
    """The name of every expert; a learner with variants is as many experts."""
    return tuple(
        f"{name}, {variant}" if variant else name
        for name, expert in zip(names, experts, strict=True)
        for variant in getattr(expert, "variants", ("",))
    )


def check_experts(names: Sequence[str], experts: Sequence[Any], behavior: Behavior) -> None:
    """Raise `InvalidArgument` if these cannot be the experts of one mixture."""
    if len(names) != len(experts):
        reason = f"there are {len(experts)} experts"
        raise InvalidArgument("names", list(names), reason, "pass a name for each")
    for name, expert in zip(names, experts, strict=True):
        if isinstance(expert, Outside):
            continue
        if not hasattr(expert, "advance_variants") or isinstance(expert, type):
            reason = f"{name!r} is of type {type(expert).__name__}, which is no expert"
            raise InvalidArgument("experts", expert, reason, REMEDY)
        _check_learner(name, expert, behavior)
    outside = [expert.name for expert in experts if isinstance(expert, Outside)]
    for kind, all_names in (("column", outside), ("name", labels_of(names, experts))):
        name, times = Counter(all_names).most_common(1)[0] if all_names else ("", 0)
        if times > 1:
            reason = f"two experts have the {kind} {name!r}"
            raise InvalidArgument("experts", list(names), reason, "leave one of them out")
    shapes = {one.spec.features for one in experts if not isinstance(one, Outside)} - {None}
    if len(shapes) > 1:
        reason = f"they take features of different shapes: {sorted(map(str, shapes))}"
        remedy = "map the features of some with us.learners.Mapped"
        raise InvalidArgument("experts", list(names), reason, remedy)


def _check_learner(name: str, expert: Learner[Any], behavior: Behavior) -> None:
    """Raise `InvalidArgument` if an expert cannot learn from the log of this behavior."""
    K, spec = n_actions_of(behavior), expert.spec
    if spec.n_actions != K:
        reason = f"{name!r} has {spec.n_actions} actions, and the behavior {K}"
        raise InvalidArgument("experts", expert, reason, f"make it for {K} actions")
    if spec.outside:
        reason = f"{name!r} follows {', '.join(spec.outside)} itself, which it does not know"
        remedy = "make production an expert of the mixture instead"
        raise InvalidArgument("experts", expert, reason, remedy)
    if spec.propensities and not isinstance(behavior, Logged):
        reason = f"{name!r} needs a propensity with each event, and the behavior is known"
        raise InvalidArgument("experts", expert, reason, "make it with the same pi_b")
