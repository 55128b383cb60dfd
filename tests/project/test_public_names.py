"""Public names: they exist, and every public function shows an example that is run."""

from __future__ import annotations

import doctest
import inspect
import sys

import pytest

import understudy as us
from tests.support.package_modules import modules

pytestmark = pytest.mark.plain

PUBLIC = (
    us,
    us.adversaries,
    us.behaviors,
    us.contexts,
    us.estimators,
    us.learners,
    us.live,
    us.logs,
    us.theory,
)


def test_every_public_function_shows_an_example_that_is_run() -> None:
    """Found as pytest finds them: a decorator that hides a doctest from it fails here."""
    functions = {
        thing
        for package in PUBLIC
        for name in package.__all__
        if inspect.isfunction(thing := getattr(package, name))
    }
    examples = {
        test.name
        for module in {sys.modules[function.__module__] for function in functions}
        for test in doctest.DocTestFinder().find(module)
        if test.examples
    }
    silent = {f"{f.__module__}.{f.__name__}" for f in functions} - examples
    assert silent == set()
    assert len(functions) > 50


def test_exports_exist_and_are_said_once() -> None:
    for module in modules():
        exported = list(getattr(module, "__all__", ()))
        assert len(set(exported)) == len(exported), module.__name__
        assert [name for name in exported if not hasattr(module, name)] == [], module.__name__
