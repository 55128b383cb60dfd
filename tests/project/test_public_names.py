"""Public names: they exist, and every public function shows an example that is run."""

from __future__ import annotations

import doctest
import inspect

import pytest

import understudy as us
from tests.support.package_modules import modules

pytestmark = pytest.mark.plain

STEPS = {  # of `us.logs.learn`, `coverage` and `certify`, whose examples are theirs
    "engine_runs": ("certify_from", "cover_from", "learn_from"),
    "findings": ("candidates_beside",),
    "learned": ("coverage_of_policy",),
    "planning": ("fold", "plan"),
    "origins": ("knows_rows", "refuse_learned", "refuse_same_rows"),
    "outputs": ("put_in_place",),
    "passes": ("good_rows", "intake_of"),
    "prepare": ("behavior_of", "columns_of", "prepare", "rules_of"),
    "reading": ("has_propensities", "rows_by_file"),
    "reporting": (
        "as_dict",
        "assemble",
        "panel_of",
        "say",
        "set_aside",
    ),
    "study": ("observe",),
    "survey": ("survey",),
    "tabular": ("header_of", "names", "scan"),
    "verdicts": ("judge_rows",),
}
PARTS = {  # of `understudy serve`, which needs a store
    "audit": ("audit", "in_order"),
    "export": ("export", "study_named"),
    "study": ("standing_of",),
    "web.app": ("make_app",),
    "web.describing": ("certificate_of", "coverage_of", "describe", "policy_of"),
    "web.operations": ("operations",),
    "web.server": ("serve",),
}
KERNELS = {f"understudy.kernels.{name}" for name in (*us.kernels.__all__, "exponentials", "levels")}
WITHOUT_EXAMPLE = {
    "understudy.cli.main": "it ends the process",
    "understudy.experiments.core.write": "matplotlib is optional",
    "understudy.benchmarks.baselines.lin_prod_in_blocks": "tests/project/test_benchmarks.py",
    "understudy.benchmarks.baselines.one_weight_a_round": "tests/project/test_benchmarks.py",
    "understudy.benchmarks.baselines.softmax_every_round": "tests/project/test_benchmarks.py",
    "understudy.benchmarks.instructions.count": "valgrind is optional",
    "understudy.benchmarks.instructions.require_callgrind": "valgrind is optional",
    "understudy.kernels.compiler.compiled": "numba keeps no code of a function without a file",
    "understudy.kernels.compiler.inlined": "it is nothing without a caller that is compiled",
    "understudy.plots.draw_certificates": "matplotlib is optional",
    "understudy.plots.draw_frames": "matplotlib is optional",
    "understudy.plots.draw_tails": "matplotlib is optional",
    "understudy.experiments.regret.curves": "the experiments are its examples",
    "understudy.experiments.regret.play_points": "the experiments are its examples",
    "understudy.plots.draw_regret": "matplotlib is optional",
    "understudy.plots.require_matplotlib": "matplotlib is optional",
    "understudy.plots.to_bytes": "matplotlib is optional",
    "understudy.benchmarks.replay.replay_in_vowpal": "Vowpal Wabbit is optional",
    "understudy.benchmarks.replay.write_for_vowpal": "tests/project/test_benchmarks.py",
    "understudy.cli.common.check_writable": "tests/simulation/test_interruptions.py",
    "understudy.cli.common.watched": "it draws on a terminal",
    **{
        f"understudy.logs.{module}.{name}": "a step of us.logs.learn, coverage or certify"
        for module, names in STEPS.items()
        for name in names
    },
    **{
        f"understudy.live.{module}.{name}": "tests/live/web/test_service.py"
        for module, names in PARTS.items()
        for name in names
    },
}


def test_every_public_function_shows_an_example_that_is_run() -> None:
    """Found as pytest finds them: a decorator that hides a doctest from it fails here.

    Kernels are left out, even if the compiler is off: their examples are in `kernels.reference`.
    """
    silent, found = set(), 0
    for module in modules():
        if module.__name__ in KERNELS:
            continue
        examples = {test.name: test.examples for test in doctest.DocTestFinder().find(module)}
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if inspect.isfunction(thing) and thing.__module__ == module.__name__:
                found += 1
                full_name = f"{module.__name__}.{thing.__name__}"
                if not examples.get(full_name):
                    silent.add(full_name)
    assert silent == set(WITHOUT_EXAMPLE)
    assert found > 300


def test_exports_exist_and_are_said_once() -> None:
    for module in modules():
        exported = list(getattr(module, "__all__", ()))
        assert len(set(exported)) == len(exported), module.__name__
        assert [name for name in exported if not hasattr(module, name)] == [], module.__name__
