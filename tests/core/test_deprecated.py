"""What was written for 0.5, for its `understudy.protocols` above all, still works, and a warning
names the new name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import understudy as us
from tests.support.strategies import Array, Integers
from understudy import Log, behaviors, protocols
from understudy.estimators import KnownBehavior
from understudy.learners import ExponentialWeights

PI = [0.5, 0.3, 0.2]


class LearnerOf05:
    """The whole protocol of 0.5, by another learner: `form`, and no `spec` or `advance`."""

    def __init__(self) -> None:
        self.inner = us.exp3_ix(PI, horizon=100)

    @property
    def form(self) -> Any:
        return self.inner.spec

    def init(self) -> Any:
        return self.inner.init()

    def policy(self, state: Any, features: Any = None) -> Array:
        return self.inner.policy(state, features)

    def update(self, state: Any, feedback: us.Feedback) -> Any:
        return self.inner.update(state, feedback)

    def replay(self, state: Any, log: Log) -> Any:
        return self.inner.replay(state, log)

    def policies(self, state: Any, log: Log) -> Any:
        return self.inner.policies(state, log)

    def merge(self, first: Any, second: Any) -> Any:
        return self.inner.merge(first, second)

    def rounds(self, state: Any) -> int:
        return self.inner.rounds(state)

    def past_horizon(self, state: Any) -> int:
        return self.inner.past_horizon(state)

    def validate(self, state: Any) -> None:
        self.inner.validate(state)


def plain() -> Any:
    return type("Plain05", (LearnerOf05,), {})()  # a class of its own: each is adopted once


def explicit() -> Any:
    return type("Explicit05", (LearnerOf05, protocols.Learner), {})()


@pytest.mark.parametrize("make", [plain, explicit])
def test_a_learner_with_form_obeys_the_laws_and_plays(make: Any) -> None:
    learner = make()
    with pytest.warns(DeprecationWarning, match="form is now spec"):
        us.check_learner(learner)
    game = us.Game(us.adversaries.stationary([0.2, 0.9, 0.4]), PI, rounds=50)
    result = us.simulate(game, {"old": learner, "new": learner.inner}, rewards="realised")
    assert result.reward["old"] == pytest.approx(result.reward["new"])
    assert result.path["old"] == "stretches"
    with pytest.warns(DeprecationWarning, match="form is now spec"):
        us.Understudy(make()).observe(action=0, reward=1.0)


def test_an_estimator_with_the_old_names_is_adopted() -> None:
    class Estimator05:
        """The protocol of 0.5: `form`, `reads_past`, `remembers`."""

        form = protocols.EventSpec(2)
        reads_past = None

        def init(self) -> Integers:
            return np.zeros(0, dtype=np.int64)

        def remembers(self, memory: Integers, rounds: int) -> bool:
            return len(memory) == 0 <= rounds

        def gains(self, memory: Integers, start: int, log: Log) -> tuple[Array, Integers]:
            del start
            return log.rewards * 2.0, memory

    old: Any = Estimator05()
    with pytest.warns(DeprecationWarning, match="goes with 0.7") as caught:
        learner = ExponentialWeights(0.1, old)
    assert sorted(str(warning.message).split(";")[0] for warning in caught) == [
        "Estimator05.form is now spec",
        "Estimator05.reads_past is now order_dependence",
        "Estimator05.remembers is now accepts_memory",
    ]
    us.check_learner(learner)


def test_a_known_behavior_with_the_old_name_is_adopted() -> None:
    with pytest.warns(DeprecationWarning, match="reads_past is now order_dependence"):

        @us.saved
        @dataclass(frozen=True, eq=False)
        class Clipped05(KnownBehavior):
            reads_past: ClassVar[None] = None

            def gain(self, R: Array, q: Array, t: Integers) -> Array:  # noqa: ARG002 - in all t
                return np.minimum(R / q, 3.0)

    learner = ExponentialWeights(0.1, Clipped05(np.array(PI)))  # type: ignore[abstract] # adopted
    us.check_learner(learner)
    assert learner.order_dependence is None


def test_old_names_of_our_own_classes_answer() -> None:
    learner: Any = us.exp3_ix(PI, horizon=10)
    with pytest.warns(DeprecationWarning, match="form is now spec"):
        assert learner.form is learner.spec
    with pytest.warns(DeprecationWarning, match="of_sums is now from_sufficient_statistics"):
        assert learner.of_sums([1.0, 0.0, 0.0], rounds=1).rounds == 1
    with pytest.warns(DeprecationWarning, match="reads_past is now order_dependence"):
        assert learner.estimator.reads_past is None
    with pytest.raises(AttributeError, match="forms"):
        _ = learner.forms
    certificate: Any = us.Certificate(PI)
    with pytest.warns(DeprecationWarning, match="Certificate.form is now spec"):
        assert certificate.form.n_actions == 3
    linear: Any = us.lin_prod([[0.5]], n_actions=2, horizon=100, kappa=3.0)
    with pytest.raises(AttributeError, match="of_sums"):  # it has none under any name
        _ = linear.of_sums


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (protocols, "Form", protocols.EventSpec),
        (behaviors, "edges_of", behaviors.cdf),
    ],
)
def test_old_names_of_modules_answer(module: Any, old: str, new: object) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now"):
        assert getattr(module, old) is new
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing
