"""`understudy.learners.experts`: models of the user's, which may return anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.strategies import Array
from understudy.errors import InvalidArgument
from understudy.learners import Model

K = 3
CONTEXTS = np.array([[0.5, 1.0], [2.0, -1.0], [0.0, 0.0]])


def one_by_one(probabilities: Callable[[Array], Any]) -> Model:
    return Model(SimpleNamespace(probabilities=probabilities), K, 2)


def classifier(predict: Callable[[Array], Any], classes: Any = None) -> Model:
    """A model as of scikit-learn."""
    model = SimpleNamespace(predict_proba=predict)
    if classes is not None:
        model.classes_ = np.array(classes)
    return Model(model, K, 2)


def two_columns(contexts: Array) -> Array:
    return np.tile([0.25, 0.75], (len(contexts), 1))


def leaning(x: Array) -> Array:
    weights = np.array([1.0, 1.0 + x[0], 2.0])
    return np.asarray(weights / weights.sum())


def test_a_model_plays_as_it_says_and_learns_nothing() -> None:
    model = one_by_one(leaning)
    wanted = np.array([leaning(x) for x in CONTEXTS])
    log = us.Log([2, 0, 1], [1.0, 0.0, 1.0], features=CONTEXTS)
    state, policies = model.policies(model.init(), log)
    replayed, trace = model.replay(model.init(), log)
    assert state == replayed == model.rounds(state) == 3
    np.testing.assert_allclose(policies, wanted, rtol=1e-15)
    assert trace.probability.tobytes() == policies[np.arange(3), log.actions].tobytes()
    assert model.policies_at(state, CONTEXTS).tobytes() == policies.tobytes()
    assert us.check_learner(model, rounds=20)


@pytest.mark.parametrize("states", [-1, 0.5, None, "1", True])
def test_the_state_of_a_model_is_a_count(states: Any) -> None:
    model = one_by_one(leaning)
    assert_refused(lambda: model.policy(states, CONTEXTS[0]), "state", "not a state")


def test_classes_are_actions_in_any_order_and_some_may_be_missing() -> None:
    model = classifier(two_columns, classes=[2, 0])
    assert model.policy(0, CONTEXTS[0]).tolist() == [0.75, 0.0, 0.25]


def test_rounding_to_float32_is_mended() -> None:
    thirds = np.full(K, 1 / 3, dtype=np.float32)
    policy = one_by_one(lambda _: thirds).policy(0, CONTEXTS[0])
    assert policy.sum() == pytest.approx(1.0, abs=1e-15)


WRONG: dict[str, tuple[Model, str]] = {
    "a sum above 1": (one_by_one(lambda _: [0.5, 0.5, 0.1]), "probabilities sum to 1.1"),
    "a sum below 1": (one_by_one(lambda _: [0.5, 0.4, 0.0]), "probabilities sum to 0.9"),
    "negative": (one_by_one(lambda _: [1.2, -0.2, 0.0]), "outside [0, 1]"),
    "not a number": (one_by_one(lambda _: [0.5, 0.5, np.nan]), "is not finite"),
    "text": (one_by_one(lambda _: ["a", "b", "c"]), "must be an array of numbers"),
    "nothing": (one_by_one(lambda _: None), "must be an array of numbers"),
    "four actions": (one_by_one(lambda _: [0.25] * 4), "it returned (1, 4) probabilities"),
    "an action": (one_by_one(lambda _: 2), "dimension"),
    "actions": (classifier(lambda X: np.zeros(len(X))), "dimension"),
    "too few rows": (classifier(lambda _: np.full((2, K), 1 / K)), "it returned (2, 3)"),
    "two actions": (classifier(two_columns), "it returned (1, 2) probabilities"),
    "classes of text": (classifier(two_columns, ["cat", "dog"]), "fit it to the indices"),
    "classes from 1": (classifier(two_columns, [1, 3]), "its classes are [1, 3]"),
    "negative classes": (classifier(two_columns, [-1, 1]), "its classes are [-1, 1]"),
    "classes as floats": (classifier(two_columns, [0.0, 1.0]), "its classes are [0.0, 1.0]"),
    "one class more": (classifier(two_columns, [0, 1, 2]), "its classes are [0, 1, 2]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_policy_is_refused(name: str) -> None:
    """When it is asked for one; the error says what the model returned and what it should."""
    model, words = WRONG[name]
    assert_refused(lambda: model.policy(0, CONTEXTS[0]), "model", words)
    mixture = us.exp4(us.Logged(K), {"mine": model, "grid": us.prod_grid(us.Logged(K))})
    log = us.Log([0, 1, 2], np.ones(3), np.full(3, 0.5), CONTEXTS)
    before = mixture.init()
    assert_refused(lambda: mixture.replay(before, log), "model", "")


def raising(error: BaseException) -> Callable[[Array], Any]:
    def predict(_: Array) -> Any:
        raise error

    return predict


def test_an_error_of_a_model_names_the_expert_and_the_call_and_is_its_cause() -> None:
    error = ValueError("X has 2 features,\nbut 3 are expected")
    mixtures = {
        shape: us.exp4(us.Logged(K), {"mine": model, "grid": us.prod_grid(us.Logged(K))})
        for shape, model in (
            (
                "predict_proba raised ValueError (X has 2 features,) for contexts of shape (3, 2)",
                classifier(raising(error)),
            ),
            (
                "probabilities raised ValueError (X has 2 features,) for contexts of shape (2,)",
                one_by_one(raising(error)),
            ),
        )
    }
    log = us.Log([0, 1, 2], np.ones(3), np.full(3, 0.5), CONTEXTS)
    for words, mixture in mixtures.items():
        state = mixture.init()
        for ask in (
            partial(mixture.replay, state, log),
            partial(mixture.policies_at, state, CONTEXTS, 3),
        ):
            with pytest.raises(InvalidArgument) as caught:
                ask()
            assert caught.value.argument == "experts['mine'].model"
            assert words in str(caught.value)
            assert "takes contexts of 2 numbers" in caught.value.remedy
            assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_a_model_passes_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        one_by_one(raising(error)).policy(0, CONTEXTS[0])
    assert caught.value is error


def test_a_model_needs_a_method_actions_and_features() -> None:
    good: Any = {"model": SimpleNamespace(probabilities=leaning), "n_actions": K, "dimension": 2}
    for name, values in {
        "model": (None, 3, SimpleNamespace(), SimpleNamespace),
        "n_actions": (1, 2.5, None),
        "dimension": (0, "two", None),
    }.items():
        for value in values:
            assert_refused(partial(Model, **{**good, name: value}), name, "")
    model = Model(**good)
    for x in ([1.0], [[1.0, 2.0]], [np.nan, 0.0], None):
        assert_refused(partial(model.policy, 0, x), "features", "")
