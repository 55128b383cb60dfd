"""Exp4 from off-policy feedback: a mixture of experts, each of them any predictable policy.

An expert is a learner of this library, a model of your own (`Model`), or an outside policy whose
probability of the logged action comes with every event: production (`Outside("production")`), or a
column of `Log.experts`. Experts learn from the same log and do not depend on the mixture. So a
chunk of rounds is two steps: every expert's probability of the logged action, then the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from understudy import kernels
from understudy.behaviors import BEHAVIOR, Behavior, Logged, n_actions_of, propensities_of
from understudy.constraints import (
    ROUNDS,
    SMALLEST_PROBABILITY,
    TUPLE,
    Array,
    array,
    constrained,
    enforce,
    having,
    number,
)
from understudy.errors import InvalidArgument
from understudy.learners.experts import (
    NAMES,
    Outside,
    check_experts,
    has_columns,
    labels_of,
    naming_expert,
)
from understudy.learners.feature_maps import check_contexts
from understudy.learners.outside_policies import (
    LEAST_SHARE,
    NOTHING,
    ProductionFollower,
    unknown_policy,
)
from understudy.learners.weighted_entropy import LOGARITHMIC, CoverageAdaptive, LeveledScores
from understudy.protocols import PRODUCTION, EventSpec, Learner, Recorder
from understudy.schedules import geometric_grid
from understudy.theory.coverage_adaptive import (
    POSITIVE_PRIOR,
    prod_grid_tuning,
    refuse_other_length,
)
from understudy.types import Log, chunks, read_only, rounds_per_chunk, saved

LEAST_PROPENSITY_REMEDY = "pass the least propensity that any action has in any round"
LEAST_PROPENSITY = number(SMALLEST_PROBABILITY, 1.0, LEAST_PROPENSITY_REMEDY)
HISTORY = geometric_grid(10)  # rounds whose weights are kept: some 130 for a million rounds


@saved
@dataclass(frozen=True, eq=False)
class MixtureState:
    """The weights of the experts, the state of each, and what they would have earned.

    `experts` has a state for every learner, and None for an outside policy. With w = π_m(b)/q(b),
    `earned` is Σ wR of every expert, the unbiased estimate of its total reward, and `moments` are
    Σ (wR)², Σ ((w − 1)R)², Σ w and Σ (w − 1)², (4, M). `rewards` is Σ R, and `least` the least
    propensity of all rounds. Row h of `history` has the weights before round `HISTORY[h]`.
    """

    weights: LeveledScores
    experts: tuple[Any, ...]
    earned: Array
    moments: Array
    history: Array
    rewards: float
    least: float
    rounds: int
    CONSTRAINTS: ClassVar = {  # enforced by snapshots: a learner makes no wrong state itself
        "weights": having("pass LeveledScores", "scores", "level"),
        "experts": TUPLE,
        "earned": array("pass the estimated reward of every expert", low=0.0),
        "moments": array("pass four sums for every expert", dimensions=(2,), low=0.0),
        "history": array("pass rows of weights", dimensions=(2,), low=0.0, high=1.0),
        "rewards": number(0.0, math.inf, "pass the sum of all rewards"),
        "least": number(SMALLEST_PROBABILITY, 1.0, "pass the least propensity of all rounds"),
        "rounds": ROUNDS,
    }


@saved
@dataclass(frozen=True, eq=False)
class Exp4(ProductionFollower[MixtureState]):
    r"""Plays $\pi_t(a|x) = \sum_m w_t(m) \pi_{m,t}(a|x)$, a mixture of experts.

    $\hat r_t(m) = w (R - c) + c$ with $w = \pi_{m,t}(b|X_t)/q_t(b)$ is an unbiased estimate of an
    expert's reward. The weights are those of `us.prod_grid` over experts in place of actions: all
    rates of a grid beside each other, with the gains $\log(1 + \eta_i \hat r_t(m))/\eta_i$.

    The center c is the mean reward of earlier rounds, but never so large that η_i r̂ may be below
    −½. So it needs a `least_propensity` of all actions in all rounds; without one, 0, it is 0. A
    smaller propensity takes its place in all later rounds.
    """

    behavior: Behavior
    names: tuple[str, ...]
    experts: tuple[Any, ...]
    weights: CoverageAdaptive
    least_propensity: float = 0.0
    CONSTRAINTS: ClassVar = {
        "behavior": BEHAVIOR,
        "names": NAMES,
        "experts": TUPLE,
        "weights": having("pass the weights of us.prod_grid", "learn_from_all", "has_levels"),
        "least_propensity": number(0.0, 1.0, LEAST_PROPENSITY_REMEDY),
    }

    def __post_init__(self) -> None:
        enforce(self)
        check_experts(self.names, self.experts, self.behavior)
        M = len(self.labels)
        grid = self.weights
        if not grid.has_levels or grid.decaying or grid.production or grid.shape[1] != M:
            reason = f"there are {M} experts, with variants"
            remedy = "pass a grid of rates for as many, or call us.exp4"
            raise InvalidArgument("weights", self.weights.shape, reason, remedy)

    @property
    def _learners(self) -> list[Learner[Any]]:
        return [one for one in self.experts if not isinstance(one, Outside)]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The name of every expert; a learner with variants is as many experts."""
        return labels_of(self.names, self.experts)

    @cached_property
    def spec(self) -> EventSpec:
        spec = EventSpec.for_behavior(self.behavior)
        features = {one.spec.features for one in self._learners} - {None}
        outside = [one.name for one in self.experts if isinstance(one, Outside)]
        if not spec.propensities:  # production is known
            outside = [name for name in outside if name != PRODUCTION]
        return replace(spec, features=next(iter(features), None), outside=tuple(outside))

    @property
    def order_dependence(self) -> str:
        return "the experts learn, so that the reward of each depends on what it has seen before"

    def init(self) -> MixtureState:
        M = len(self.labels)
        states = tuple(None if isinstance(one, Outside) else one.init() for one in self.experts)
        earned, moments, history = (read_only(np.zeros(shape)) for shape in (M, (4, M), (0, M)))
        return MixtureState(self.weights.init(), states, earned, moments, history, 0.0, 1.0, 0)

    def accepts(self, state: MixtureState) -> bool:
        M = len(self.labels)
        return (
            isinstance(state, MixtureState)
            and self.weights.accepts(state.weights)
            and len(state.experts) == len(self.experts)
            and state.earned.shape == (M,)
            and state.moments.shape == (4, M)
            and state.history.shape[1] == M
            and all(
                one is None if isinstance(expert, Outside) else expert.accepts(one)
                for expert, one in zip(self.experts, state.experts, strict=True)
            )
        )

    def is_possible(self, state: MixtureState) -> bool:
        seen = int(np.searchsorted(HISTORY, state.rounds, side="right"))
        return (
            self.weights.is_possible(state.weights)
            and state.weights.rounds == state.rounds
            and state.rewards <= state.rounds
            and len(state.history) == seen
            and all(
                isinstance(expert, Outside)
                or (expert.is_possible(one) and expert.rounds(one) == state.rounds)
                for expert, one in zip(self.experts, state.experts, strict=True)
            )
        )

    def check_log(self, log: Log) -> None:
        super().check_log(log)
        for expert in self._learners:
            expert.check_log(expert.spec.visible(log))

    def shares(self, state: MixtureState) -> dict[str, float]:
        """The weight of every expert in the next round, by name.

        >>> import understudy as us
        >>> experts = {"production": "production", "ix": us.exp3_ix([0.5, 0.5])}
        >>> learner = us.exp4([0.5, 0.5], experts)
        >>> learner.shares(learner.init())
        {'production': 0.5, 'ix': 0.5}
        """
        self.check_state(state)
        return dict(zip(self.labels, self.weights.policy(state.weights).tolist(), strict=True))

    def policy(
        self,
        state: MixtureState,
        features: ArrayLike | None = None,
        *,
        production: ArrayLike | None = None,
        experts: Mapping[str, ArrayLike] | None = None,
    ) -> Array:
        self.check_state(state)
        x = self._check_features(features)
        outside = self.check_outside(production, experts)
        return np.asarray(self._mixed(state, x, outside)[0])

    def policies_at(
        self,
        state: MixtureState,
        features: ArrayLike | None,
        rows: int = 1,
        *,
        production: ArrayLike | None = None,
        experts: Mapping[str, ArrayLike] | None = None,
    ) -> Array:
        self.check_state(state)
        x = self._check_features(features, single=False)
        n = rows if x is None else len(x)
        return self._mixed(state, x, self.check_outside(production, experts, n), n)

    def known_at(
        self, state: MixtureState, features: Array | None, rows: int = 1
    ) -> tuple[Array, Array]:
        n = rows if features is None else len(features)
        nothing = dict.fromkeys(self.spec.outside, np.zeros((n, self.spec.n_actions)))
        known, shares = self._mixed(state, features, nothing, n), self.shares(state)
        pairs = zip(self.names, self.experts, strict=True)
        names = {one.name: name for name, one in pairs if isinstance(one, Outside)}
        return known, np.array([shares[names[column]] for column in self.spec.outside])

    def variants_at(self, state: MixtureState, features: Array) -> Array:
        return self._mixed(state, features, {})[:, np.newaxis]

    def _check_features(self, features: ArrayLike | None, *, single: bool = True) -> Array | None:
        """The contexts as (n, p), of one if `single`."""
        wanted = self.spec.features
        if wanted is not None:
            return check_contexts(features, wanted, single=single)
        if features is not None:
            reason, remedy = "no expert takes contexts", "leave them out"
            raise InvalidArgument("features", features, reason, remedy)
        return None

    def evaluator(self, state: MixtureState) -> Callable[..., Array]:
        """Σ_m w(m) π_m(·|x); an unknown outside policy of a negligible share is left out."""
        M, K = len(self.labels), n_actions_of(self.behavior)
        weights, mix = self.weights.policy(state.weights), kernels.weighted_entropy.mix
        fixed = np.zeros((1, M, K))  # the policies of experts that ignore contexts
        contextual: list[tuple[slice, Callable[[Array | None], Array]]] = []
        unknown: list[tuple[str, str, int]] = []
        m = 0
        for name, expert, own in zip(self.names, self.experts, state.experts, strict=True):
            place = slice(m, m + len(getattr(expert, "variants", ("",))))
            if isinstance(expert, Outside):
                if expert.name == PRODUCTION and not isinstance(self.behavior, Logged):
                    fixed[:, place] = self.behavior
                else:
                    unknown.append((name, expert.name, m))
            elif expert.spec.features is None:
                fixed[:, place] = expert.policy(own)
            else:
                contextual.append((place, naming_expert(name, expert.evaluator(own))))
            m = place.stop

        def evaluate(
            features: Array | None, outside: Mapping[str, Array] = NOTHING, rows: int = 1
        ) -> Array:
            n = rows if features is None else len(features)
            policies, missing = np.empty((n, M, K)), 0.0
            policies[:] = fixed
            for place, policies_of in contextual:
                policies[:, place] = policies_of(features)
            for name, column, m in unknown:
                if column in outside:
                    policies[:, m] = outside[column]
                elif n and weights[m] > LEAST_SHARE:
                    raise unknown_policy(name, column, float(weights[m]))
                else:
                    missing += float(weights[m])
            mixed = np.empty((n, K))
            mix(weights[np.newaxis].repeat(n, axis=0), policies, mixed)
            return (mixed / (1.0 - missing) if missing else mixed)[:, np.newaxis]

        return evaluate

    def _mixed(
        self, state: MixtureState, x: Array | None, outside: Mapping[str, Array], rows: int = 1
    ) -> Array:
        return np.asarray(self.evaluator(state)(x, outside, rows)[:, 0])

    def advance(self, state: MixtureState, log: Log, recorder: Recorder) -> MixtureState:
        size = rounds_per_chunk(len(self.labels) * n_actions_of(self.behavior))
        for start, count in chunks(len(log), size):
            state = self._advance_chunk(state, log[start : start + count], recorder)
        return state

    def _advance_chunk(self, state: MixtureState, log: Log, recorder: Recorder) -> MixtureState:
        n, whole = len(log), recorder.whole
        q = propensities_of(self.behavior, log)
        states, columns = [], []
        for name, expert, own in zip(self.names, self.experts, state.experts, strict=True):
            if isinstance(expert, Outside):
                after, part = None, self._outside_column(expert, log, q, recorder, whole=whole)
            else:
                advance = naming_expert(name, expert.advance_variants)
                after, part = advance(own, expert.spec.visible(log), whole=whole)
            states.append(after)
            columns.append(part)
        found = np.concatenate(columns, axis=1)
        each = np.arange(n)
        chosen = found[each, :, log.actions] if whole else found[:, :, 0]
        ratios = chosen / q[:, np.newaxis]
        sums = np.cumsum(np.append(state.rewards, log.rewards))  # one by one: batching is no matter
        lows = np.minimum.accumulate(np.append(state.least, q))
        events = ratios, log.rewards, *self._centers(sums[:-1], lows[:-1], state.rounds)
        weights, shares = self.weights.learn_from_all(state.weights, events)
        mixed = np.empty((n, n_actions_of(self.behavior) if whole else 1))
        kernels.weighted_entropy.mix(shares, found if whole else chosen[:, :, np.newaxis], mixed)
        recorder.add_rows(mixed, shares @ self._follows)
        paid = ratios * log.rewards[:, np.newaxis]
        gained = paid - log.rewards[:, np.newaxis]
        moments = np.stack([paid**2, gained**2, ratios, (ratios - 1.0) ** 2], axis=1)
        first, last = np.searchsorted(HISTORY, [state.rounds + 1, state.rounds + n + 1])
        seen = shares[HISTORY[first:last] - state.rounds - 1]
        return MixtureState(
            weights,
            tuple(states),
            read_only(_running_sum(state.earned, paid)),
            read_only(_running_sum(state.moments, moments)),
            read_only(np.concatenate([state.history, seen])),
            float(sums[-1]),
            float(lows[-1]),
            state.rounds + n,
        )

    @cached_property
    def _follows(self) -> Array:
        """1 for the expert that does as production does, (M,)."""
        names = [
            isinstance(expert, Outside) and expert.name == PRODUCTION
            for expert in self.experts
            for _ in getattr(expert, "variants", ("",))
        ]
        return np.array(names, dtype=np.float64)

    def _centers(self, rewards: Array, lows: Array, rounds: int) -> tuple[Array, Array]:
        """The center of each round and the largest possible w less 1, from earlier rounds alone.

        The least propensity is that of earlier rounds if one of them has contradicted the given
        one. A center that went by the propensity of the played action would be a bias.
        """
        if not self.least_propensity:
            return np.zeros(len(rewards)), np.zeros(len(rewards))
        means = (0.5 + rewards) / (rounds + np.arange(1.0, len(rewards) + 1.0))
        return means, 1.0 / np.minimum(self.least_propensity, lows) - 1.0

    def _outside_column(
        self, expert: Outside, log: Log, q: Array, recorder: Recorder, *, whole: bool
    ) -> Array:
        """The probability of the logged action, (n, 1, 1), or of all actions, (n, 1, K)."""
        if not whole:
            known = q if expert.name == PRODUCTION else self.spec.outside_column(expert.name, log)
            return known[:, np.newaxis, np.newaxis]
        if expert.name != PRODUCTION:
            raise InvalidArgument(
                "experts",
                expert.name,
                "the log has its probability of the logged action alone",
                "call learner.replay, which needs no other",
            )
        if not isinstance(self.behavior, Logged):
            return np.broadcast_to(self.behavior, (len(log), 1, len(self.behavior)))
        return recorder.production_of(len(log))[:, np.newaxis]


def _running_sum(total: Array, rows: Array) -> Array:
    """total + the sum of rows, added row by row, so that batching changes no bit."""
    return np.asarray(np.cumsum(np.concatenate([total[np.newaxis], rows]), axis=0)[-1])


@constrained(
    pi_b=BEHAVIOR,
    prior=POSITIVE_PRIOR.optional(),
    least_propensity=LEAST_PROPENSITY.optional(),
)
def exp4(
    pi_b: ArrayLike | Logged,
    experts: Mapping[str, Any],
    *,
    prior: ArrayLike | None = None,
    least_propensity: float | None = None,
) -> Exp4:
    r"""Exp4 from off-policy feedback: as good as the best of M experts, whatever they are.

    $$\hat r_t(m) = \frac{\pi_{m,t}(b|X_t)}{q_t(b)} (R_t - c_t) + c_t, \quad
    G_t(m, i) = \sum_{k<t} \frac{\log(1 + \eta_i \hat r_k(m))}{\eta_i}, \quad
    w_t(m) = \sum_i w_1(m, i) e^{\eta_i (G_t(m, i) - \Lambda_t)}, \quad
    \pi_t = \sum_m w_t(m) \pi_{m,t}$$

    with the grid of rates of `us.prod_grid`. Its bound, for every expert at once, is
    `us.theory.exp4_bound`; the proof is in docs/theory.md. Experts must be predictable: π_m of a
    round may depend on its context and on earlier rounds. A model that was fitted to rows of this
    log is not, and no check can notice that.

    Args:
        pi_b: q, the behavior policy: K probabilities, or `us.Logged`.
        experts: by name: a learner; "production", to do as production does; a column of
            `Log.experts`, as `us.learners.Outside("its name")`; or a model with
            `probabilities(x)` or `predict_proba(X)`, as `us.learners.Model(model, K, p)`.
        prior: the prior weight of every expert; left out: all alike.
        least_propensity: f: in every round, every action that an expert may play has a propensity
            of at least f. With it the estimates are centred at the mean reward so far, which takes
            most of their noise away where most rewards are alike. Left out: min q of a known
            behavior; with `us.Logged`, or with columns among the experts, there is no center,
            c = 0. A column that is no policy, such as one of zeros, would gain by a center.

    >>> import understudy as us
    >>> pi_b = [0.5, 0.3, 0.2]
    >>> experts = {"production": "production", "ix": us.exp3_ix(pi_b), "grid": us.prod_grid(pi_b)}
    >>> learner = us.exp4(pi_b, experts)
    >>> learner.policy(learner.init()).round(4).tolist()
    [0.3889, 0.3222, 0.2889]
    """
    if not isinstance(experts, Mapping) or not experts:
        remedy = "pass a dictionary of learners, such as {'production': 'production', 'ix': ...}"
        raise InvalidArgument("experts", experts, "they need names", remedy)
    made = {
        str(name): Outside(PRODUCTION) if isinstance(one, str) and one == PRODUCTION else one
        for name, one in experts.items()
    }
    names, policies = tuple(made), tuple(made.values())
    check_experts(names, policies, pi_b)  # type: ignore[arg-type] # checked above
    count = len(labels_of(names, policies))
    if count < 2:  # noqa: PLR2004 - a mixture
        reason = "one expert is no mixture"
        raise InvalidArgument("experts", list(made), reason, "pass at least two")
    shares = np.full(count, 1.0 / count) if prior is None else np.asarray(prior)
    refuse_other_length(shares, count, "prior")
    rates, levels = prod_grid_tuning()
    own = None if prior is None else shares
    weights = CoverageAdaptive(Logged(count), rates, levels, LOGARITHMIC, action_prior=own)
    if least_propensity is None:
        unknown = isinstance(pi_b, Logged) or has_columns(policies)
        least_propensity = 0.0 if unknown else float(np.min(pi_b))  # type: ignore[arg-type]
    return Exp4(pi_b, names, policies, weights, least_propensity)  # type: ignore[arg-type] # checked above
