"""The shape of the source and its tests: folders, names, imports, modules that a command visits.

The import depth is that of `understudy.cli.log_commands`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy as us
from tests.support.logs.log_files import make_rows, write
from tests.support.paths import ROOT

pytestmark = pytest.mark.plain

SRC = ROOT / "src"
PACKAGE = SRC / "understudy"
COMMANDS = "understudy.cli.log_commands"
USED = "understudy.logs"  # the commands import it when they run

# Limits are the present values: lower them when the code gets better, never raise them.
LARGEST_FOLDER = 15  # modules in a folder, without __init__
# By `understudy learn log.parquet`, with the searches for copies and for sticky rows, which brought
# two modules: every log is examined; what a verdict is, apart from how it follows, brought one; the
# question that is asked, and the certificates that answer it, three; learning and certifying in two
# modules, with what they share, three. The target is 35.
MODULES_VISITED = 54
IMPORT_DEPTH = 19  # of the log commands; target: 15
TEST_FILES_THAT_LOOK_INSIDE = 0  # at modules they are not about

# A kernel beside its learner may share its name.
KERNELS_BESIDE_LEARNERS = {"exponential_weights", "lin_prod", "ridge", "weighted_entropy"}


def sources(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def test_no_folder_has_too_many_modules() -> None:
    for folder in {path.parent for path in sources(PACKAGE)}:
        modules = [path for path in folder.glob("*.py") if path.stem != "__init__"]
        assert len(modules) <= LARGEST_FOLDER, folder


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


# Modules that `understudy` lists among its names, and `understudy` itself.
PUBLIC_MODULES = {"understudy"} | {
    value.__name__ for name in us.__all__ if inspect.ismodule(value := getattr(us, name))
}
DOTTED = re.compile(r"understudy(\.\w+)+")


@functools.cache
def listed_names(module: str) -> frozenset[str]:
    """The names in the `__all__` of a module."""
    path = module_file(module)
    assert path is not None, module
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def is_package(module: str) -> bool:
    path = module_file(module)
    return path is not None and path.stem == "__init__"


class Uses(ast.NodeVisitor):
    """The internal modules that a file of tests uses: by import, as an attribute, by name.

    Names are public that a package, or a module in `PUBLIC_MODULES`, has in its `__all__`.
    """

    def __init__(self) -> None:
        self.internal: set[str] = set()
        self.modules: dict[str, str] = {}  # by the names they have in the file

    def reach(self, module: str, name: str) -> str | None:
        """Note what it takes to reach a name in a module; return the module that it is, if any."""
        if module in PUBLIC_MODULES and name in listed_names(module):
            value = getattr(sys.modules[module], name)
            return value.__name__ if inspect.ismodule(value) else None
        found = f"{module}.{name}"
        if module_file(found):
            if not is_package(found) and found not in PUBLIC_MODULES:
                self.internal.add(found)
            return found
        is_open = is_package(module) or module in PUBLIC_MODULES
        if not (is_open and (name in listed_names(module) or name.startswith("__"))):
            self.internal.add(module)
        return None

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first, *rest = alias.name.split(".")
            if first == "understudy":
                self.modules[alias.asname or first] = self.follow(first, rest) or first

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module is None or node.module.split(".")[0] != "understudy":
            return
        for alias in node.names:
            if found := self.reach(node.module, alias.name):
                self.modules[alias.asname or alias.name] = found

    def follow(self, module: str, names: list[str]) -> str | None:
        """The module at the end of a chain of names, or None if something else is there."""
        found: str | None = module
        for name in names:
            found = self.reach(found, name) if found else None
        return found

    def visit_Attribute(self, node: ast.Attribute) -> None:
        first, *rest = ast.unparse(node).split(".")
        if first in self.modules and all(name.isidentifier() for name in rest):
            self.follow(self.modules[first], rest)
        else:
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """A string that names a module, or something in it, as patches do."""
        if isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            first, *rest = node.value.split(".")
            if module_file(f"{first}.{rest[0]}"):  # not a file or a host
                self.follow(first, rest)


def subject_of(path: Path, docstring: str) -> str | None:
    """The module or package that a file of tests is about: the one that its docstring names, or
    else the package of its folder. A package that has packages is too much for one file.
    """
    named = re.findall(r"`(understudy(?:\.\w+)+)`", docstring)
    folder = path.parent.relative_to(ROOT / "tests").parts
    assert len(named) <= 1, f"{path} is about more than one module: {named}"
    subject: str = named[0] if named else ".".join(("understudy", *folder))
    file = module_file(subject)
    assert file or not named, f"{path} is about {subject}, which does not exist"
    if file is None or (is_package(subject) and list(file.parent.glob("*/__init__.py"))):
        return None
    return subject


def looks_inside(path: Path) -> set[str]:
    """The internal modules that a file of tests uses and is not about."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    uses = Uses()
    uses.visit(tree)
    subject = subject_of(path, ast.get_docstring(tree) or "")
    return {
        module
        for module in uses.internal
        if subject is None or not (module == subject or module.startswith(f"{subject}."))
    }


def test_tests_use_public_names_or_the_module_they_are_about() -> None:
    """Public names, the module or package of the folder or the docstring, and `tests.support`."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    found = {path.relative_to(ROOT): modules for path in files if (modules := looks_inside(path))}
    lines = (f"{path}: {', '.join(sorted(modules))}" for path, modules in found.items())
    assert len(found) <= TEST_FILES_THAT_LOOK_INSIDE, "\n".join(lines)
