"""`plan`: how long a log must become until its certificate decides, before any of it is collected.

It simulates the log that production would write if one action were better by the smallest gain that
matters, many times, and certifies it (`power`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from understudy.certificates.evidence import CONFIDENCE
from understudy.constraints import (
    COUNT,
    HORIZON,
    POSITIVE,
    PROBABILITIES,
    SEED,
    Array,
    constrained,
    number,
)
from understudy.errors import InvalidArgument
from understudy.protocols import Learner
from understudy.simulation import plan_words
from understudy.simulation.plan_arguments import (
    ACTIONS,
    AGAINST,
    BEST,
    EXPLORATION,
    GAIN_THAT_MATTERS,
    GUARDRAILS,
    MEAN_REWARD,
    MEANS,
    PRODUCTION,
    always,
    check_length,
    exploring,
    means_with_gain,
    one_better,
    production_of,
    refuse_beside,
    refuse_hopeless,
    target_of,
)
from understudy.simulation.planned_game import PlannedGame, PlannedGuardrail
from understudy.simulation.power import can_be_in_blocks, decision_rounds
from understudy.simulation.simulate import PROGRESS, Progress, reporter
from understudy.types import read_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HALF, MOST = 0.5, 0.9  # the chances of a verdict that a plan names
# Rounds: a company with a million rows a day would wait for 27 years.
LONGEST = 10**10
# Of a learner, or of a policy with very many weights: all runs take some ten seconds.
LONGEST_ROUND_BY_ROUND = 2**17
RUNS = 400  # the standard error of the median is about 3 %
MORE_EXPLORATION = (0.2, 0.5, 1.0)  # shares to compare with


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """How many rows, and days, a certificate needs to decide in a planned game.

    `decisions` has the round of the decision of each simulated run, in increasing order; inf, where
    there was none in the first `longest` rounds. `exploration` is None if production's shares were
    given; `stated` says whether the rewards follow from the gain that matters. With guardrails
    `alone` has the rounds after which each metric was shown by itself, (metrics, runs), the goal
    first.
    """

    game: PlannedGame
    decisions: Array
    longest: int
    confidence: float
    seed: int
    traffic: float | None = None
    exploration: float | None = None
    stated: bool = True
    alone: Array | None = None

    @property
    def gain(self) -> float:
        """The gain of the target over its baseline; of a learner, that of the best action."""
        return self.game.gain

    def rounds_for(self, power: float) -> float:
        """The first round after which so many of the runs are decided; inf if they never are."""
        index = math.ceil(POWER("power", power) * len(self.decisions) - ROUNDING) - 1
        return float(self.decisions[max(0, index)])

    def days_for(self, power: float) -> float | None:
        """`rounds_for` in days of the traffic; None if the traffic is not known."""
        return self.days_of(self.rounds_for(power))

    def days_of(self, rounds: float) -> float | None:
        """So many rounds in days of the traffic; None if the traffic is not known."""
        return None if self.traffic is None else rounds / self.traffic

    @property
    def median(self) -> float:
        """Rounds for a verdict in half of the runs; inf if that takes more than `longest`."""
        return self.rounds_for(HALF)

    @property
    def ninety(self) -> float:
        """Rounds for a verdict in 90 % of the runs; inf if that takes more than `longest`."""
        return self.rounds_for(MOST)

    @property
    def median_days(self) -> float | None:
        """Days for a verdict in half of the runs; None if the traffic is not known."""
        return self.days_for(HALF)

    @property
    def ninety_days(self) -> float | None:
        """Days for a verdict in 90 % of the runs; None if the traffic is not known."""
        return self.days_for(MOST)

    def power_at(self, rounds: float) -> float:
        """The share of the runs that are decided after so many rounds."""
        return float(np.searchsorted(self.decisions, rounds, side="right") / len(self.decisions))

    @property
    def curve(self) -> tuple[Array, Array]:
        """Power over time: rounds, and the share of the runs that are decided after them."""
        rounds = np.unique(self.decisions[np.isfinite(self.decisions)])
        share = np.searchsorted(self.decisions, rounds, side="right") / len(self.decisions)
        return read_only(rounds), read_only(share)

    @property
    def limit(self) -> float | None:
        """Rounds that no valid test of a fixed policy beats on average; None of a learner."""
        if not isinstance(self.game.target, np.ndarray):
            return None
        return -math.log(1.0 - self.confidence) / self.game.divergence

    @property
    def slowest(self) -> tuple[str, float] | None:
        """The guardrail that takes longer than the goal, and longest, by itself, if there is one.

        With the rounds for a chance of 50 % that it is shown not to be worse by its margin.
        """
        if self.alone is None:
            return None
        goal, *others = np.quantile(self.alone, HALF, axis=1, method="lower").tolist()
        most = max(others)
        name = self.game.guardrails[others.index(most)].guardrail.name
        return (name, most) if most > goal else None

    @property
    def sooner(self) -> dict[float, float]:
        """Rounds for a verdict in 90 % of the runs if production explored more, by its share.

        They are scaled by the information limit, and not simulated.
        """
        if (
            self.exploration is None
            or self.limit is None
            or not self.stated
            or self.game.guardrails
        ):
            return {}
        game, found = self.game, {}
        for share in MORE_EXPLORATION:
            if share > self.exploration and math.isfinite(self.ninety):
                q = exploring(len(game.means), share)
                means = means_with_gain(
                    q, float(game.means.min()), game.gain, game.best, game.against
                )
                if means[game.best] <= 1.0:
                    other = replace(game, behavior=q, means=means)
                    found[share] = self.ninety * game.divergence / other.divergence
        return found

    def plot(self, title: str = "Chance of a verdict") -> Figure:
        """Power over time as a matplotlib figure, with lines at 50 % and 90 %."""
        from understudy.plots import PowerPanel, draw_power  # noqa: PLC0415 - above this module

        rounds, power = self.curve
        by_day = 1.0 if self.traffic is None else self.traffic
        unit = "rows" if self.traffic is None else "days"
        return draw_power(
            PowerPanel(
                times=rounds / by_day,
                power=power,
                unit=unit,
                marks={share: self.rounds_for(share) / by_day for share in (HALF, MOST)},
            ),
            title=title,
        )

    def __repr__(self) -> str:
        return plan_words.decision(self)


POWER = number(0.0, 1.0, "pass a chance between 0 and 1, such as 0.9", above=True)
ROUNDING = 1e-9  # .9 × 10 is not above 9


@constrained(
    actions=ACTIONS.optional(),
    traffic=POSITIVE.optional(),
    production=PROBABILITIES.optional(),
    exploration=EXPLORATION.optional(),
    reward=MEAN_REWARD.optional(),
    gain=GAIN_THAT_MATTERS.optional(),
    best=BEST.optional(),
    against=AGAINST,
    means=MEANS.optional(),
    policy=PROBABILITIES.optional(),
    guardrails=GUARDRAILS,
    horizon=HORIZON.optional(),
    confidence=CONFIDENCE,
    runs=COUNT,
    seed=SEED,
    longest=COUNT.optional(),
    progress=PROGRESS,
)
def plan(
    actions: int | None = None,
    *,
    traffic: float | None = None,
    production: ArrayLike | None = None,
    exploration: float | None = None,
    reward: float | None = None,
    gain: float | None = None,
    best: int | None = None,
    against: str = PRODUCTION,
    means: ArrayLike | None = None,
    policy: ArrayLike | None = None,
    learner: str | Learner[Any] | None = None,
    horizon: int | None = None,
    guardrails: Sequence[PlannedGuardrail] = (),
    confidence: float = 0.95,
    runs: int = RUNS,
    seed: int = 0,
    longest: int | None = None,
    progress: Progress = False,
) -> Plan:
    """Plan a log: the rows and days after which its certificate decides, with 50 % and 90 % power.

    The log is simulated many times, and certified as `us.certify` does. Rewards are 0 or 1, which
    vary most of all rewards in [0, 1] with the same mean. Either `reward` and `gain` say what all
    actions earn, or `means` does. The target is the policy that always plays the best action; or
    the `policy`, or a `learner` while it learns.

    Args:
        actions: K; left out: as many as `production` has.
        traffic: rows per day; left out: the plan has no days.
        production: production's policy, K probabilities.
        exploration: in its place, the share of rows in which production draws any of the actions
            uniformly; in all others it plays action 0, its incumbent.
        reward: the mean reward of production, and of every action but the best one.
        gain: the smallest gain that matters, of the best action.
        best: the action that is better; left out: the last of those that production plays least.
        against: 'production': the gain, and the verdict, is over production's mixture of actions.
            'action': it is over production's most frequent action.
        means: the mean reward of each action, instead of `reward`, `gain` and `best`.
        policy: a fixed policy to certify, K probabilities; needs `means`.
        learner: 'prod-grid' (the default of `understudy learn`), 'exp3-ix', or a learner of your
            own for this production. It is certified while it learns.
        horizon: the number of rounds that a learner named 'exp3-ix' is made for.
        guardrails: metrics that may not become worse, for a verdict about all of them together; of
            a fixed policy.
        confidence: of the verdict.
        runs: the number of simulated logs; run i is a pure function of (seed, i).
        seed: of the random numbers.
        longest: the most rounds that are simulated. A plan that needs more says so.
        progress: True for a bar, or a function that is called with the number of runs just decided.

    >>> import understudy as us
    >>> plan = us.plan(2, traffic=100, exploration=0.5, reward=0.1, gain=0.1, runs=50)
    >>> plan.median_days == plan.median / 100
    True
    >>> plan
    About ... days for a 50 % chance of a verdict, ... days for 90 %.
    """
    q = production_of(actions, production, exploration)
    baseline = None if against == PRODUCTION else always(int(np.argmax(q)), len(q))
    if means is not None:
        refuse_beside("means", {"reward": reward, "gain": gain, "best": best})
        r: Array = np.asarray(means)
        check_length("means", r, len(q))
    else:
        r = one_better(q, reward, gain, best, baseline)
    target = target_of(q, r, policy, learner, horizon, stated=means is None)
    game = PlannedGame(q, r, target, baseline, tuple(guardrails))
    refuse_hopeless(game, own_policy=policy is not None)
    enough = math.ceil(MOST * runs - ROUNDING)
    with reporter(progress, enough) as report:
        found = decision_rounds(
            game,
            confidence,
            runs=runs,
            enough=enough,
            seed=seed,
            longest=_longest(game, longest),
            report=report,
        )
    return Plan(
        game,
        read_only(np.sort(found.rounds)),
        found.played,
        confidence,
        seed,
        traffic,
        exploration,
        stated=means is None,
        alone=found.alone,
    )


def _longest(game: PlannedGame, longest: int | None) -> int:
    """The most rounds to simulate: a learner has its horizon."""
    horizon: int | None = getattr(game.target, "horizon", None)  # a learner may be made without
    if horizon is not None and longest is not None and longest > horizon:
        reason = f"the learner is made for {horizon} rounds"
        raise InvalidArgument("longest", longest, reason, "make it for more, or leave this out")
    return longest or horizon or (LONGEST if can_be_in_blocks(game) else LONGEST_ROUND_BY_ROUND)
