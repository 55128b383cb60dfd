"""`us.per_context`: one learner for each context, bit for bit; and `Cell`, which numbers them."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.saved_values import saved_text
from tests.support.strategies import quick, seeds
from understudy.errors import InvalidEvent, NotMergeable
from understudy.learners import Cell, Learner, Mapped, PerContext

K, N_CONTEXTS = 3, 4
PI = [0.5, 0.3, 0.2]
INNER: dict[str, Learner[Any]] = {
    "grid": us.prod_grid(us.Logged(n_actions=K)),
    "prod": us.prod(PI, eta=0.2),
    "a falling rate": us.exp3_ix(PI),
    "memory": us.exp3_ix_unknown(K),
}


def some_log(learner: Learner[Any], rounds: int, seed: int) -> us.Log:
    """Rounds of all contexts but the last."""
    rng = np.random.default_rng(seed)
    return us.Log(
        rng.integers(K, size=rounds),
        rng.random(rounds),
        rng.uniform(0.1, 1.0, rounds) if learner.spec.propensities else None,
        rng.integers(N_CONTEXTS - 1, size=(rounds, 1)).astype(float),
    )


def rows_of(log: us.Log, context: int, inner: Learner[Any]) -> us.Log:
    assert log.features is not None
    own = log.features[:, 0] == context
    q = log.propensities[own] if inner.spec.propensities and log.propensities is not None else None
    return us.Log(log.actions[own], log.rewards[own], q)


@pytest.mark.parametrize("name", INNER)
@quick
@given(seed=seeds, rounds=st.integers(1, 40))
def test_every_context_has_a_learner_of_its_own(name: str, seed: int, rounds: int) -> None:
    """States, policies and traces are those of separate learners, of rounds in any interleaving."""
    inner = INNER[name]
    learner = us.per_context(inner, n_contexts=N_CONTEXTS)
    log = some_log(learner, rounds, seed)
    assert log.features is not None
    state, trace = learner.replay(learner.init(), log)
    after, policies = learner.policies(learner.init(), log)
    assert saved_text(after) == saved_text(state)
    for context in range(N_CONTEXTS):
        rows, own = rows_of(log, context, inner), log.features[:, 0] == context
        alone, wanted = inner.replay(inner.init(), rows)
        assert saved_text(learner.state_of(state, context)) == saved_text(alone)
        assert trace.probability[own].tobytes() == wanted.probability.tobytes()
        assert policies[own].tobytes() == inner.policies(inner.init(), rows)[1].tobytes()
        assert learner.policy(state, [context]).tobytes() == inner.policy(alone).tobytes()
    assert state.states[N_CONTEXTS - 1] is None
    every = np.arange(float(N_CONTEXTS))[:, np.newaxis]
    each = np.array([learner.policy(state, x) for x in every])
    assert learner.policies_at(state, every).tobytes() == each.tobytes()
    assert learner.variants_at(state, every)[:, 0].tobytes() == each.tobytes()


@quick
@given(seed=seeds, cut=st.integers(0, 40))
def test_states_add_up_context_by_context(seed: int, cut: int) -> None:
    inner = INNER["prod"]
    learner = us.per_context(inner, n_contexts=N_CONTEXTS)
    log = some_log(learner, 40, seed)
    first, second = (learner.replay(learner.init(), part)[0] for part in (log[:cut], log[cut:]))
    whole, _ = learner.replay(learner.init(), log)
    merged = learner.merge(first, second)
    assert merged.rounds == whole.rounds == 40
    for one, two in zip(merged.states, whole.states, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            np.testing.assert_allclose(one.scores, two.scores, rtol=1e-12)
    falling = us.per_context(INNER["a falling rate"], n_contexts=2)
    with pytest.raises(NotMergeable):
        falling.merge(falling.init(), falling.init())


def test_what_is_no_learner_of_tables_is_refused() -> None:
    make: Any = us.per_context
    for wrong, words in (
        (us.ridge(n_actions=K, dimension=2), "it must ignore contexts"),
        (us.prod_grid(us.Logged(K), production=0.1), "follow no policy"),
        ("prod", "it has no"),
        (us.prod_grid, "it has no"),
    ):
        assert_refused(partial(make, wrong, n_contexts=2), "learner", words)
    for count in (0, 2.5, None, 10_001):
        assert_refused(partial(make, INNER["prod"], n_contexts=count), "n_contexts", "")


@pytest.mark.parametrize("wrong", [-1.0, 0.5, 2.0, 1e300])
def test_contexts_are_numbers_from_0(wrong: float) -> None:
    learner = us.per_context(INNER["prod"], n_contexts=2)
    state = learner.init()
    assert_refused(lambda: learner.policy(state, [wrong]), "features", "numbered 0 to 1")
    log = us.Log([0, 1], [1.0, 0.0], features=[[1.0], [wrong]])
    with pytest.raises(InvalidEvent, match=r"features of event 1.*numbered 0 to 1"):
        learner.replay(state, log)
    for shape in ([], [0.0, 1.0], [[0.0]]):
        assert_refused(partial(learner.policy, state, shape), "features", "")


def test_another_table_has_other_states() -> None:
    learner: PerContext = us.per_context(INNER["prod"], n_contexts=2)
    other = us.per_context(INNER["prod"], n_contexts=3)
    assert_refused(lambda: learner.policy(other.init(), [0.0]), "state", "not a state")


# Cells


@pytest.mark.parametrize("sizes", [[2], [1, 3], [2, 1, 2]])
def test_every_combination_of_labels_has_a_number_of_its_own(sizes: list[int]) -> None:
    """A column without a mark, such as one with a new label, counts as one more label."""
    starts = np.cumsum([2, *sizes])[:-1]
    cell = Cell(2 + sum(sizes) + 1, starts, np.array(sizes))
    rows = []
    for labels in itertools.product(*(range(size + 1) for size in sizes)):
        row = np.zeros(cell.dimension)
        row[0], row[-1] = 1.0, -3.0  # features of other columns
        for label, start, size in zip(labels, starts, sizes, strict=True):
            if label < size:
                row[start + label] = 1.0
        rows.append(row)
    assert cell(np.array(rows))[:, 0].tolist() == list(range(cell.n_contexts))


def test_cells_need_places_among_the_features() -> None:
    for starts, sizes, argument in (
        ([0], [4], "starts"),
        ([2, 0], [2], "starts"),
        ([], [], "starts"),
        ([-1], [1], "starts"),
        ([0], [0], "sizes"),
        ([0.5], [1], "starts"),
    ):
        assert_refused(
            partial(Cell, 3, np.array(starts), np.array(sizes)),
            argument,
            "",
        )
    many = np.arange(60)
    assert_refused(lambda: Cell(60, many, np.ones(60, int)), "sizes", "leave columns out")


def test_a_table_behind_a_map_sees_the_cells() -> None:
    cell = Cell(dimension=3, starts=np.array([1]), sizes=np.array([2]))
    table = us.per_context(INNER["prod"], n_contexts=cell.n_contexts)
    mapped, contexts = Mapped(table, cell), np.array([[1.0, 1, 0], [1, 0, 1], [1, 0, 0], [9, 1, 0]])
    log = us.Log([0, 1, 2, 0], [1.0, 0.5, 0.25, 1.0], features=contexts)
    numbered = us.Log(log.actions, log.rewards, features=[[0.0], [1.0], [2.0], [0.0]])
    (state, trace), (alone, wanted) = (
        learner.replay(learner.init(), rows) for learner, rows in ((mapped, log), (table, numbered))
    )
    assert saved_text(state) == saved_text(alone)
    assert trace.probability.tobytes() == wanted.probability.tobytes()
    assert_refused(lambda: Mapped(us.ridge(n_actions=K, dimension=2), cell), "map", "(2,)")
    assert_refused(lambda: Mapped(INNER["prod"], cell), "map", "None")
