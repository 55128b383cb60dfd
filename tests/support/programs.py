"""Programs and packages that only `make test-all` needs.

A test that needs one says so: `@pytest.mark.needs("wrk")`. It then is a test of `make test-all`,
and is skipped, for a reason that names the program, where the program is missing.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

__all__ = ["find", "mark_needs"]

# How to get each of them. A package is imported; all others are looked for on the path.
INSTALL = {
    "chromium": "apt-get install chromium",
    "java": "apt-get install default-jre-headless",
    "node": "apt-get install nodejs",
    "pg_ctl": "apt-get install postgresql",
    "pyspark": "make .venv/spark",
    "valgrind": "apt-get install valgrind",
    "vowpalwabbit": "make .venv/bench",
    "wrk": "apt-get install wrk",
}
PACKAGES = {"pyspark", "vowpalwabbit"}
OTHER_NAMES = {"chromium": ("google-chrome",)}


def find(name: str) -> str | None:
    """The path of a program, or None if it is missing."""
    if name == "pg_ctl":  # Debian keeps it off the path
        debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
        if debian:
            return str(debian[-1])
    found = map(shutil.which, (name, *OTHER_NAMES.get(name, ())))
    return next((path for path in found if path), None)


def is_missing(name: str) -> bool:
    if name in PACKAGES:
        return importlib.util.find_spec(name) is None
    return find(name) is None


def mark_needs(item: pytest.Item) -> None:
    """Leave a test that needs programs to `make test-all`; skip it if one is missing."""
    needed = [name for marker in item.iter_markers("needs") for name in marker.args]
    if needed:
        item.add_marker(pytest.mark.full)
    for name in needed:
        if is_missing(name):
            item.add_marker(pytest.mark.skip(reason=f"{name} is not installed: {INSTALL[name]}"))
