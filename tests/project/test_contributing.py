"""CONTRIBUTING's five steps, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.paths import ROOT, UNFINISHED

pytestmark = pytest.mark.plain

FORMULA = """
import understudy as us

def test_the_formula_of_clipped_exp3_is_the_one_on_the_page():
    learner = us.clipped_exp3([0.5, 0.25, 0.25], largest=3.0)
    state, _ = learner.replay(learner.init(), us.Log(actions=[0, 1], rewards=[1.0, 1.0]))
    assert state.scores.tolist() == [2.0, 3.0, 0.0]
"""
BLOCK = re.compile(r"```python\n( *# (?P<file>\S+)\n.*?)```", re.DOTALL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project, with the page's blocks added to the files that they name."""
    project = tmp_path / "project"
    for folder in ("src", "tests"):  # with what Python and numba have compiled
        ignored = shutil.ignore_patterns(*UNFINISHED)
        shutil.copytree(ROOT / folder, project / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", project)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) == 6
    for block in blocks:
        path = project / block["file"]
        code = textwrap.dedent(block[1])
        if path.name == "test_constraints.py":  # the tests below are made from the table
            text = path.read_text(encoding="utf-8")
            table = text.index("\n}\n", text.index("EXAMPLES: ")) + 3
            path.write_text(text[:table] + code + text[table:], encoding="utf-8")
        else:
            with path.open("a", encoding="utf-8") as file:
                file.write("\n" + code)
    (project / "tests" / "test_formula.py").write_text(FORMULA, encoding="utf-8")
    return project


def test_the_suite_finds_the_new_learner_and_passes(copy: Path) -> None:
    """Its laws, declarations, doctest and formula: what is about it, and nothing else."""
    tests = [
        "src/understudy/learners/recipes.py",
        "tests/core/test_conformance.py",
        "tests/core/test_constraints.py",
        "tests/test_formula.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", "clipped", *tests],
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": str(copy / "src"),
            "PYTEST_ADDOPTS": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a second, for plugins that these tests lack
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    for found in (
        "test_recipes_obey_the_laws[clipped_exp3] PASSED",
        "recipes.py::understudy.learners.recipes.clipped_exp3 PASSED",
        "test_the_example_is_accepted[learners.recipes.clipped_exp3] PASSED",
        "test_the_example_is_accepted[estimators.Clipped] PASSED",
        "test_every_declaration_is_applied[learners.recipes.clipped_exp3] PASSED",
        "test_every_declaration_is_applied[estimators.Clipped] PASSED",
        "test_the_formula_of_clipped_exp3_is_the_one_on_the_page PASSED",
    ):
        assert found in done.stdout, found
