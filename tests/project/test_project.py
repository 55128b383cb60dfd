"""What the project says of itself is true: README, the package, the pins, the public names."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.logs.log_files import make_rows, write
from tests.support.paths import ROOT
from understudy import cli
from understudy.experiments import EXPERIMENTS

pytestmark = pytest.mark.plain

README = (ROOT / "README.md").read_text(encoding="utf-8")
TINY = {"runs": "2", "rounds": "20", "alphas": "2", "actions": "3"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.large
def test_the_example_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in blocks("python"):
        exec(compile(example, "README.md", "exec"), names)
    first, certificate = capsys.readouterr().out.splitlines()
    assert first.startswith("7 ")
    assert us.load(tmp_path / "understudy.json").rounds == 10_000
    assert certificate.startswith("Promote (first certain after round ")


def test_every_command_in_the_readme_exists_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """make targets exist (CI runs them); `understudy` commands run, at a small size.

    Figures stay blank: what is on them is test_paper_command's.
    """
    assert {"make run", "make test", "make check", "make test-all"} <= set(commands())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    write(tmp_path / "log.parquet", make_rows(2_000))
    write(tmp_path / "later.parquet", make_rows(2_000, seed=1))
    for command in commands():
        program, *arguments = shlex.split(command)
        if program == "make":
            assert set(arguments) <= targets()
            continue
        assert program == ".venv/bin/understudy"
        if arguments[0] == "serve":  # tests/live/test_commands.py starts and stops it
            assert set(arguments) == {"serve"}
            continue
        sizes: list[str] = []
        if arguments[0] == "paper" and "--help" not in arguments:
            own = EXPERIMENTS[arguments[1]].sizes
            sizes = [part for size in own for part in (f"--{size}", TINY[size])]
            sizes += ["--jobs", "1", "--out", str(tmp_path)]
        run(arguments + sizes, monkeypatch)


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an `understudy` command here, as a reader would, in this process."""
    monkeypatch.setattr(sys, "argv", ["understudy", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0, arguments


@pytest.mark.large
def test_the_page_about_logs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of docs/logs.md, one after the other: Python is run, commands are typed."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    page = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", page, re.DOTALL):
        if language == "python":
            exec(compile(block, "logs.md", "exec"), names)
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "understudy"
            run(arguments, monkeypatch)
    assert names["judged"].certified.promoted
    assert names["contextual"].certified.promoted


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names of docs/guide.md, block after block as a reader would type it.

    First those that stand when the first half ends, at the sweep; then those of the end.
    """
    page = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    half: dict[str, Any] = {}
    with contextlib.chdir(tmp_path_factory.mktemp("guide")):  # where its files go
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            if not half and ("def sweep" in block or "cells" in block):
                half = dict(names)
            exec(compile(block, "guide.md", "exec"), names)
    return half, names


@pytest.mark.large
def test_the_guide_runs(guide: tuple[dict[str, Any], dict[str, Any]]) -> None:
    _, names = guide
    assert names["regret"] < names["bound"]


@pytest.mark.large
def test_the_sums_of_the_guide_are_those_of_a_replay(
    guide: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    _, names = guide
    ridge, log = names["experts"]["ridge"], names["log"]
    replayed, _ = ridge.replay(ridge.init(), ridge.spec.visible(log))
    np.testing.assert_array_equal(names["summed"].counts, replayed.counts)
    for x in log.features[:20]:
        found = ridge.policy(names["summed"], x)
        np.testing.assert_allclose(found, ridge.policy(replayed, x), rtol=1e-9)


@pytest.mark.large
def test_the_compiled_adversary_of_the_guide_is_its_python_twin(
    guide: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    names, _ = guide
    assert names["fast"].path == {"Exp3-IX": "compiled"}
    assert names["result"].path == {"Exp3-IX": "referee"}
    np.testing.assert_allclose(
        names["fast"].regret["Exp3-IX"], names["result"].regret["Exp3-IX"], atol=1e-9
    )


def test_relative_links_in_the_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_ci_runs_nothing_that_the_readme_does_not_name() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    called = re.findall(r"^(?:env .*)?(make [a-z-]+)$", script, re.MULTILINE)
    assert called == ["make check", "make test", "make test-full", "make test-uncompiled"]
    assert set(called) <= set(commands())


def test_the_theory_page_names_tests_and_functions_that_exist() -> None:
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    tests = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 40
    assert {name for name in named if f"def {name}(" not in tests} == set()
    functions = re.findall(r"`(?:us\.)?theory\.(\w+)", page)
    assert {name for name in functions if not hasattr(us.theory, name)} == set()


def needed(name: str, seen: set[str]) -> set[str]:
    """A distribution and all that it needs here, extras of our own included."""
    if name in seen:
        return seen
    seen.add(name)
    for requirement in importlib.metadata.requires(name) or []:
        other = re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")
        optional = "extra ==" in requirement and name != "understudy"
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if not optional and importlib.metadata.version(other):
                needed(other, seen)
    return seen


def test_constraints_pin_every_package_that_is_needed() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins if "==" in pin}
    wanted = needed("understudy", set()) - {"understudy"}
    assert {"numpy", "matplotlib", "pytest", "mypy", "hatchling"} <= wanted
    assert wanted <= pinned
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", pin) for pin in pins)


def test_the_core_is_small_and_heavy_parts_wait() -> None:
    """Importing the library imports neither the compiler nor plotting, bars or workers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[><=]", dependency)[0] for dependency in project["dependencies"]}
    assert names == {"numpy", "numba", "joblib", "click", "rich"}
    heavy = {"numba", "llvmlite", "matplotlib", "joblib", "rich", "scipy", "distributed"}
    of_logs = {"polars", "pyarrow", "duckdb", "narwhals", "jinja2", "pandas"}
    of_service = {"fastapi", "starlette", "uvicorn", "structlog", "prometheus_client", "psycopg"}
    of_client = {"httpx", "pydantic", "tenacity"}
    assert imported_by("understudy") & (heavy | of_logs | of_service | of_client) == set()
    assert imported_by("understudy.live") & (of_logs | of_service) == set()


def imported_by(module: str) -> set[str]:
    """What is in memory after an import, in a process of its own."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(("part", "brings"), [("live", "httpx"), ("logs", "polars")])
def test_a_part_whose_extra_is_not_installed_names_it(part: str, brings: str) -> None:
    code = f"import sys; sys.modules[{brings!r}] = None; import understudy; understudy.{part}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    line = f"needs {brings}; install it with: pip install 'understudy[{part}]'"
    assert done.stderr.splitlines()[-1].startswith("understudy.errors.MissingExtra: ")
    assert done.stderr.splitlines()[-1].endswith(line)


def test_the_package_is_typed_and_has_one_version() -> None:
    assert (ROOT / "src" / "understudy" / "py.typed").exists()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {us.__version__} " in changelog


def test_public_names_exist_and_are_documented() -> None:
    for name in us.__all__:
        assert inspect.getdoc(getattr(us, name)), f"us.{name} has no docstring"


def test_the_contract() -> None:
    """The calls that other people rely on, as they are promised."""
    n, pi_b = 50, us.behaviors.interpolated(n_actions=100, alpha=0.9)
    assert pi_b.shape == (100,)
    for learner in (
        us.exp3(pi_b, horizon=n),
        us.exp3_ix(pi_b, horizon=n, coverage=None),
        us.prod(pi_b, horizon=n),
        us.exp3_ix_unknown(100, horizon=n),
    ):
        state = learner.init()
        assert learner.policy(state).shape == (100,)
        feedback = us.Feedback(action=3, reward=1.0, propensity=None, features=None)
        state = learner.update(state, feedback)
        log = us.Log(actions=[3, 4], rewards=[1.0, 0.0], propensities=None, features=None)
        state, trace = learner.replay(state, log)
        assert trace.probability.shape == (2,)
        certified = us.certify(log, trace, behavior=pi_b, confidence=0.95)
        assert certified.lower <= certified.production <= certified.upper
        assert (certified.rounds.tolist(), certified.promoted_at) == ([1, 2], None)
    V = np.eye(2)
    linear = us.lin_prod(
        V, n_actions=3, horizon=n, eta=None, kappa=4.0, feature_bound=None, coverage=None
    )
    assert linear.policy(linear.init(), np.zeros((3, 2))).tolist() == [1 / 3] * 3
    assert us.coverage(0, pi_b) == 1 / pi_b[0]
    assert us.feature_coverage(V, V) == 2.0
    adversary = us.adversaries.switching(n_actions=100, rounds=n)
    game = us.Game(adversary=adversary, behavior=pi_b, rounds=n)
    result = us.simulate(
        game,
        learners={"name": us.exp3(pi_b, horizon=n)},
        runs=2,
        seed=0,
        comparators=[0, pi_b],
        rewards="mean",
    )
    assert result.regret["name"].shape == (2, 2)


def test_playing_past_the_horizon_goes_on_flagged() -> None:
    linear = us.lin_prod(np.eye(1), n_actions=2, horizon=3, kappa=2.0)
    for learner, features in (
        (us.exp3_ix([0.5, 0.5], horizon=3), None),
        (linear, np.ones((9, 2, 1))),
    ):
        u: us.Understudy[Any] = us.Understudy(learner)
        log = us.Log([0] * 9, [1.0] * 9, features=features)
        trace = u.replay(log[:5])
        assert (u.rounds, u.past_horizon, trace.past_horizon) == (5, 2, 2)
        assert u.replay(log[:1]).past_horizon == 1
        assert (u.past_horizon, u.replay(log).past_horizon) == (3, 9)
