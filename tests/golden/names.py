"""Public names: modules, functions with their arguments, classes, commands with their options."""

from __future__ import annotations

import dataclasses
import inspect
import re
import warnings
from functools import cache
from typing import Any

import understudy as us

from .outside import run

__all__ = ["MODULES", "command_names", "described", "module_names", "public"]

MODULES = (
    *("understudy", "logs", "live", "theory", "behaviors", "adversaries", "contexts"),
    *("estimators", "errors"),
)
OPTION = re.compile(r"^  (?:(-\w), )?(--[a-z][a-z-]*)(?: (\S.*?))?(?:  .*)?$", re.MULTILINE)
COMMAND = re.compile(r"^  ([a-z]+)(?:  .*)?$", re.MULTILINE)
CHOICES = re.compile(r"^\[([\w-]+(?:\|[\w-]+)+)\]$")


def public(module: str, name: str | None = None) -> Any:
    """A module of the library, or what it holds under a name; old names may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = us if module == "understudy" else getattr(us, module)
        return found if name is None else getattr(found, name)


def module_names(module: str) -> dict[str, Any]:
    """Every public name of a module, described."""
    return {name: described(public(module, name)) for name in sorted(public(module).__all__)}


def described(value: Any) -> dict[str, Any]:
    """What a caller may rely on: arguments of a function; members and ancestors of a class."""
    found: dict[str, Any] = {}
    if callable(value):
        found["parameters"] = _parameters(value)
    if inspect.isclass(value):
        fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        declared = inspect.get_annotations(value)  # attributes of instances, fields of pydantic
        members = {*dir(value), *(field.name for field in fields), *declared}
        found["members"] = sorted(name for name in members if not name.startswith("_"))
        if issubclass(value, BaseException):
            found["ancestors"] = [one.__name__ for one in value.__mro__]
    return found


def _parameters(value: Any) -> list[str]:
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):  # written in C, or a protocol
        return []


@cache
def command_names() -> dict[str, dict[str, list[str]]]:
    """Every command, every option, and the choices that an option offers, as `--help` has them."""
    top = run("--help").out
    found = {"": _options(top)}
    for command in _commands(top):
        text = run(command, "--help").out
        found[command] = _options(text)
        for inner in _commands(text):
            found[f"{command} {inner}"] = _options(run(command, inner, "--help").out)
    return found


def _commands(text: str) -> list[str]:
    return COMMAND.findall(text.partition("Commands:")[2])


def _options(text: str) -> dict[str, list[str]]:
    options = text.partition("Options:")[2].partition("Commands:")[0]
    found = {}
    for short, long, kind in OPTION.findall(options):
        choices = CHOICES.match(kind or "")
        found[long] = choices[1].split("|") if choices else []
        if short:
            found[short] = []
    arguments = re.search(r"Usage: .*\[OPTIONS\](.*)", text)
    usage = arguments[1] if arguments else ""
    for choices in re.findall(r"[\[{]+([a-z0-9_]+(?:\|[a-z0-9_]+)+)[\]}]+", usage):
        found["argument"] = choices.split("|")
    return found
