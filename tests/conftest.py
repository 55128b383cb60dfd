"""What pytest does with the markers of this project."""

from __future__ import annotations

import gc

import pytest

from tests.support.programs import mark_needs


def pytest_itemcollected(item: pytest.Item) -> None:
    mark_needs(item)


def pytest_collection_finish() -> None:
    # The collected tests and their modules stay to the end. Without this each collection of
    # garbage looks at all of them, which takes a third of a second.
    gc.collect()
    gc.freeze()
