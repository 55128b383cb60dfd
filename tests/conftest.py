"""What pytest does with the markers of this project."""

from __future__ import annotations

import pytest

from tests.support.programs import mark_needs


def pytest_itemcollected(item: pytest.Item) -> None:
    mark_needs(item)
