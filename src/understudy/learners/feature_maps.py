"""Maps of contexts to the features of a learner, and a learner behind such a map.

    RandomFourier    x to cosines that approximate a Gaussian kernel
    Leverage         x scaled down to xᵀV⁻¹x ≤ κ, as LinProd needs
    Cell             labels to the number of their combination, for `us.per_context`

A map is fixed before the first round and depends on the context alone, so that policies stay
predictable. Maps are saved with the learner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.constraints import (
    COUNT,
    LARGEST_COUNT,
    POSITIVE,
    TRUTH,
    Array,
    array,
    constrained,
    enforce,
    having,
    refuse_large_state,
)
from understudy.errors import InvalidArgument
from understudy.protocols import LEARNER, EventSpec, Learner, Recorder
from understudy.theory.coverage_ratio import COVARIANCE_BLOCKS, leverage
from understudy.types import CONTEXTS, FEATURES, Integers, Log, kernel_view, read_only, saved

GENERATOR = having("pass np.random.default_rng(seed)", "normal", "uniform")


class FeatureMap(Protocol):
    """A map of contexts (n, p) to features (n, …): the same bits, however rows are batched."""

    @property
    def dimension(self) -> int:
        """p of the contexts that it takes."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the features of one context."""
        ...

    def __call__(self, contexts: Array) -> Array: ...


def check_contexts(features: Any, shape: tuple[int, ...], *, single: bool = False) -> Array:
    """Contexts as (n, …), of one if `single`; `InvalidArgument` if they have another shape."""
    checked = (FEATURES if single else CONTEXTS)("features", features)
    contexts = np.asarray(checked[np.newaxis] if single else checked)
    if contexts.shape[1:] != shape:
        reason = f"each context must be given as features of shape {shape}"
        raise InvalidArgument("features", contexts.shape[1:], reason, "pass the context x")
    return contexts


@saved
@dataclass(frozen=True, eq=False)
class RandomFourier:
    r"""$(1, \sqrt{2/D} \cos(\langle\omega_d, x\rangle + \phi_d))$, d = 1..D, (D + 1,).

    Inner products of these features approximate $\exp(-\gamma\|x - x'\|^2)$ if the frequencies are
    N(0, 2γ) and the phases uniform (`us.learners.random_fourier` draws them).
    """

    frequencies: Array
    phases: Array
    CONSTRAINTS: ClassVar = {
        "frequencies": array("pass frequencies as (p, D)", dimensions=(2,)),
        "phases": array("pass D phases"),
    }

    def __post_init__(self) -> None:
        enforce(self)
        if len(self.phases) != self.frequencies.shape[1]:
            reason = f"there are {self.frequencies.shape[1]} frequencies"
            raise InvalidArgument("phases", len(self.phases), reason, "pass a phase for each")

    @property
    def dimension(self) -> int:
        return len(self.frequencies)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.phases) + 1,)

    def __call__(self, contexts: Array) -> Array:
        out = np.empty((len(contexts), *self.shape))
        scale = math.sqrt(2.0 / max(1, len(self.phases)))
        frequencies, phases = kernel_view(self.frequencies), kernel_view(self.phases)
        kernels.ridge.fourier(kernel_view(contexts), frequencies, phases, scale, out)
        return out


@constrained(dimension=COUNT, features=COUNT, gamma=POSITIVE, rng=GENERATOR, constant=TRUTH)
def random_fourier(
    *, dimension: int, features: int, gamma: float, rng: Generator, constant: bool = True
) -> RandomFourier:
    """Draw random Fourier features of the kernel exp(−γ‖x − x'‖²).

    With `constant`, the first entry of a context is a constant 1, which all differences lack.

    >>> drawn = random_fourier(dimension=3, features=4, gamma=0.5, rng=np.random.default_rng(0))
    >>> drawn(np.ones((2, 3))).shape
    (2, 5)
    """
    refuse_large_state("features", features, lambda count: count * dimension)
    frequencies = rng.normal(scale=math.sqrt(2.0 * gamma), size=(dimension, features))
    if constant:
        frequencies[0] = 0.0
    return RandomFourier(frequencies, rng.uniform(0.0, 2.0 * math.pi, features))


@saved
@dataclass(frozen=True, eq=False)
class Leverage:
    """x · min(1, √(κ / max_a xᵀ V_a⁻¹ x)), so that κ bounds every leverage."""

    V: Array
    kappa: float
    CONSTRAINTS: ClassVar = {"V": COVARIANCE_BLOCKS, "kappa": POSITIVE}

    def __post_init__(self) -> None:
        enforce(self)
        _ = self.V_inverse  # computed here, because a worker's LAPACK may round otherwise

    @cached_property
    def V_inverse(self) -> Array:  # noqa: N802 - the paper's V
        return read_only(np.linalg.inv(self.V))

    @property
    def dimension(self) -> int:
        return int(self.V.shape[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    def __call__(self, contexts: Array) -> Array:
        return bound_leverage(contexts, self.V_inverse, self.kappa)


def bound_leverage(contexts: Array, V_inverse: Array, kappa: float) -> Array:
    """x · min(1, √(κ / max_a xᵀ V_a⁻¹ x)) of every context."""
    largest = np.maximum(leverage(contexts, V_inverse).max(axis=1), kappa)  # so that 0 stays 0
    return np.asarray(contexts * np.sqrt(kappa / largest)[:, np.newaxis])


@saved
@dataclass(frozen=True, eq=False)
class Cell:
    """The number of a combination of labels, (1,), from features that mark labels by 1.

    `starts` and `sizes` say where the features of each column of labels are among the p; a column
    without a mark (a new label) has one more value of its own.

    >>> Cell(dimension=5, starts=[1, 3], sizes=[2, 2])(np.array([[1.0, 0, 1, 0, 0]])).tolist()
    [[5.0]]
    """

    dimension: int
    starts: Integers
    sizes: Integers
    CONSTRAINTS: ClassVar = {
        "dimension": COUNT,
        "starts": array("pass where the labels of each column begin", dtype=np.int64, low=0),
        "sizes": array("pass how many labels each column has", dtype=np.int64, low=1),
    }
    shape: ClassVar[tuple[int, ...]] = (1,)

    def __post_init__(self) -> None:
        enforce(self)
        ends = self.starts + self.sizes if self.starts.shape == self.sizes.shape else np.array([])
        if not len(ends) or (ends > self.dimension).any():
            reason = f"each column needs a place among the {self.dimension} features"
            raise InvalidArgument("starts", self.starts, reason, "pass a start and a size for each")
        if self.n_contexts > LARGEST_COUNT:
            reason = "not every combination has a number of its own"
            raise InvalidArgument("sizes", self.sizes, reason, "leave columns out")

    @property
    def n_contexts(self) -> int:
        """The number of combinations."""
        return math.prod(size + 1 for size in self.sizes.tolist())

    def __call__(self, contexts: Array) -> Array:
        number = np.zeros(len(contexts), dtype=np.int64)
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            marks = contexts[:, start : start + size] > 0.0
            label = np.where(marks.any(axis=1), marks.argmax(axis=1), size)
            number = number * (size + 1) + label
        return number[:, np.newaxis].astype(np.float64)


FEATURE_MAP = having("pass one of us.learners' feature maps", "shape", "dimension", "__call__")


@saved
@dataclass(frozen=True, eq=False)
class Mapped(Learner[Any]):
    """A learner that sees other features of the contexts: those of a map.

    >>> import understudy as us
    >>> fourier = random_fourier(dimension=2, features=8, gamma=1.0, rng=np.random.default_rng(0))
    >>> learner = Mapped(us.ridge(n_actions=3, dimension=9), fourier)
    >>> learner.policy(learner.init(), [1.0, 0.5]).round(4).tolist()
    [0.3333, 0.3333, 0.3333]
    """

    learner: Learner[Any]
    map: Any
    CONSTRAINTS: ClassVar = {"learner": LEARNER, "map": FEATURE_MAP}

    def __post_init__(self) -> None:
        enforce(self)
        if self.learner.spec.features != self.map.shape:
            reason = f"the learner takes features of shape {self.learner.spec.features}"
            raise InvalidArgument("map", self.map.shape, reason, "pass a map to that shape")

    @cached_property
    def spec(self) -> EventSpec:
        return replace(self.learner.spec, features=(self.map.dimension,))

    @property
    def variants(self) -> tuple[str, ...]:
        return self.learner.variants

    @property
    def order_dependence(self) -> str | None:
        return self.learner.order_dependence

    @property
    def horizon(self) -> int | None:
        """The horizon of the learner."""
        return getattr(self.learner, "horizon", None)

    def init(self) -> Any:
        return self.learner.init()

    def rounds(self, state: Any) -> int:
        return self.learner.rounds(state)

    def accepts(self, state: Any) -> bool:
        return self.learner.accepts(state)

    def is_possible(self, state: Any) -> bool:
        return self.learner.is_possible(state)

    def add_states(self, first: Any, second: Any) -> Any:
        return self.learner.add_states(first, second)

    def policy(self, state: Any, features: ArrayLike | None = None) -> Array:
        self.check_state(state)
        shape = (self.map.dimension,)
        return self.learner.policy(state, self.map(check_contexts(features, shape, single=True))[0])

    def policies_at(self, state: Any, features: ArrayLike | None, rows: int = 1) -> Array:
        self.check_state(state)
        contexts = check_contexts(features, (self.map.dimension,))
        return self.learner.policies_at(state, self.map(contexts), rows)

    def advance(self, state: Any, log: Log, recorder: Recorder) -> Any:
        return self.learner.advance(state, self._mapped(log), recorder)

    def advance_variants(self, state: Any, log: Log, *, whole: bool) -> tuple[Any, Array]:
        return self.learner.advance_variants(state, self._mapped(log), whole=whole)

    def variants_at(self, state: Any, features: Array) -> Array:
        return self.learner.variants_at(state, self.map(features))

    def evaluator(self, state: Any) -> Callable[..., Array]:
        evaluate, map_ = self.learner.evaluator(state), self.map
        return lambda features: evaluate(map_(features))

    def known_at(self, state: Any, features: Array | None, rows: int = 1) -> tuple[Array, Array]:
        return self.learner.known_at(state, self.map(features), rows)

    def _mapped(self, log: Log) -> Log:
        return log.with_features(self.map(log.features))
