"""The shape of the source: folders, names, import depth, and the modules that a command visits."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.logs.log_files import make_rows, write
from tests.support.paths import ROOT

pytestmark = pytest.mark.plain

SRC = ROOT / "src"
PACKAGE = SRC / "understudy"
COMMANDS = "understudy.cli.log_commands"
USED = "understudy.logs"  # the commands import it when they run

# Limits are the present values: lower them when the code gets better, never raise them.
LARGEST_FOLDER = 15  # modules in a folder, without __init__
LARGER_FOLDERS = {"web": 22}  # a router and an OpenAPI generator of its own; target: none
MODULES_VISITED = 45  # by `understudy learn log.parquet`; target: 35
IMPORT_DEPTH = 19  # of the log commands; target: 15

# A kernel beside its learner may share its name.
KERNELS_BESIDE_LEARNERS = {"exponential_weights", "lin_prod", "weighted_entropy"}


def sources(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def test_no_folder_has_too_many_modules() -> None:
    for folder in {path.parent for path in sources(PACKAGE)}:
        modules = [path for path in folder.glob("*.py") if path.stem != "__init__"]
        assert len(modules) <= LARGER_FOLDERS.get(folder.name, LARGEST_FOLDER), folder


def test_no_class_and_no_module_has_the_name_of_another() -> None:
    classes: dict[str, list[Path]] = {}
    modules: dict[str, list[Path]] = {}
    for path in sources(PACKAGE, ROOT / "benchmarks"):
        if not path.stem.startswith("__"):
            modules.setdefault(path.stem, []).append(path)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(path)
    assert {name for name, paths in classes.items() if len(paths) > 1} == set()
    twice = {name for name, paths in modules.items() if len(paths) > 1}
    assert twice <= KERNELS_BESIDE_LEARNERS
    for name in KERNELS_BESIDE_LEARNERS & twice:
        assert {path.parent.name for path in modules[name]} == {"kernels", "learners"}


@functools.cache
def module_file(name: str) -> Path | None:
    """The file of a module of the package, or None if there is no such module."""
    path = SRC.joinpath(*name.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in candidates if file.is_file()), None)


def imports_of(name: str) -> set[str]:
    """The modules of the package that a module imports when it is imported itself."""
    path = module_file(name)
    assert path is not None, name
    found: set[str] = set()
    for node in statements_on_import(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{name} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if module_file(inner) else node.module)
    return {module for module in found if module_file(module)} - {name}


def statements_on_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements outside of functions and classes, without those for type checkers."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            yield from statements_on_import([*node.body, *node.orelse])
        elif isinstance(node, ast.Try | ast.With):
            yield from statements_on_import(node.body)


@functools.cache
def import_chain(name: str) -> tuple[str, ...]:
    """The longest chain of imports that begins with a module; a circle is a RecursionError."""
    below = (import_chain(module) for module in sorted(imports_of(name)))
    return (name, *max(below, key=len, default=()))


def test_the_log_commands_import_in_few_levels() -> None:
    chain = max(import_chain(COMMANDS), (COMMANDS, *import_chain(USED)), key=len)
    assert len(chain) <= IMPORT_DEPTH, "\n".join(chain)


VISIT = """
import sys, threading
from pathlib import Path
import numba, polars  # which take long to import where every call is noted
import understudy, understudy.cli, understudy.cli.log_commands

root = str(Path(understudy.__file__).parent)
visited, importing = set(), threading.local()

def note(frame, event, argument):
    if event not in ("call", "return"):
        return
    code, depth = frame.f_code, getattr(importing, "depth", 0)
    if code.co_name == "<module>":
        importing.depth = depth + (1 if event == "call" else -1)
    elif event == "call" and depth == 0 and code.co_filename.startswith(root):
        if code.co_filename.endswith(".py"):  # not a compiled template
            visited.add(code.co_filename)

sys.argv = ["understudy", *sys.argv[1:]]
threading.setprofile(note)
sys.setprofile(note)
try:
    understudy.cli.main()
except SystemExit as ended:
    status = ended.code
finally:
    sys.setprofile(None)
    threading.setprofile(None)
sys.stdout.flush()
print("visited:", *sorted(visited), sep="\\n")
sys.exit(status)
"""


def modules_visited(*arguments: str) -> list[str]:
    """The modules in whose functions a command comes, on all threads; imports do not count."""
    command = [sys.executable, "-c", VISIT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    files = done.stdout.partition("visited:\n")[2].splitlines()
    return [str(Path(file).relative_to(PACKAGE)) for file in files]


@pytest.mark.large
def test_learning_visits_few_modules(tmp_path: Path) -> None:
    log = write(tmp_path / "log.parquet", make_rows(200))
    visited = modules_visited("learn", str(log), "--out", str(tmp_path / "out"))
    assert "logs/learn.py" in visited
    assert len(visited) <= MODULES_VISITED, "\n".join(visited)
