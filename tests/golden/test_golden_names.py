"""Every public name of 0.5.0 is there: modules, arguments, members, commands, options."""

from __future__ import annotations

from typing import Any

import pytest

from .compare import read
from .names import command_names, described, public

pytestmark = pytest.mark.plain

NAMES: dict[str, dict[str, Any]] = read("names.json")
# Objects that a client makes: callers use their members, and construct none of them.
MADE_BY_CLIENTS = ("Study", "AsyncStudy", "Background")


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in NAMES.items() for name in names]
)
def test_a_public_name(module: str, name: str) -> None:
    """It is there, under its old name too, with all arguments and members that it had."""
    found = described(public(module, name))
    for part, members in NAMES[module][name].items():
        if module == "live" and name in MADE_BY_CLIENTS and part == "parameters":
            continue
        missing = [member for member in members if member not in found[part]]
        assert not missing, f"{module}.{name} has lost {part}: {missing}"


@pytest.mark.parametrize("command", read("commands.json"))
def test_a_command(command: str) -> None:
    """It has all options that it had, and they offer all choices that they did."""
    found = command_names()
    assert command in found
    for option, choices in read("commands.json")[command].items():
        assert option in found[command], f"understudy {command} has lost {option}"
        assert set(choices) <= set(found[command][option])
