"""CONTRIBUTING's five steps, followed to the letter: the code blocks of the page are run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import understudy as us
from understudy import constraints, estimators, learners, types
from understudy.learners import recipes

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The page's estimator and recipe, defined with the names that those modules import."""
    monkeypatch.setattr(types, "SAVED", dict(types.SAVED))
    names = {**vars(constraints), **vars(types), **vars(recipes), **vars(estimators)}
    names["__name__"] = "understudy.estimators"
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(textwrap.dedent(block), "CONTRIBUTING.md", "exec"), names)
    return names


def test_the_new_learner_obeys_every_law(new: dict[str, Any]) -> None:
    learner = new["clipped_exp3"]([0.5, 0.25, 0.25], eta=0.1, largest=3.0)
    assert len(us.check_learner(learner)) == len(us.conformance.LAWS)


def test_its_formula_is_the_one_on_the_page(new: dict[str, Any]) -> None:
    learner = new["clipped_exp3"]([0.5, 0.25, 0.25], eta=0.1, largest=3.0)
    state, _ = learner.replay(learner.init(), us.Log(actions=[0, 1], rewards=[1.0, 1.0]))
    assert state.scores.tolist() == [2.0, 3.0, 0.0]


def test_its_constraints_refuse(new: dict[str, Any]) -> None:
    with pytest.raises(us.errors.InvalidArgument, match="largest"):
        new["clipped_exp3"]([0.5, 0.5], eta=0.1, largest=-1.0)


def test_naming_it_in_the_table_is_enough_to_be_found(
    new: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(learners.RECIPES, "clipped_exp3", new["clipped_exp3"])
    monkeypatch.setitem(us.conformance.EXAMPLE_ARGUMENTS, "largest", 3.0)
    monkeypatch.setitem(us.conformance.EXAMPLE_ARGUMENTS, "eta", 0.01)
    assert "clipped_exp3" in dict(us.conformance.example_learners())
