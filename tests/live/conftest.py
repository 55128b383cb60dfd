"""Kernels for the services that tests start in their own process (`understudy.live.state`)."""

from __future__ import annotations

import pytest

from understudy.live.state import precompile


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """Compile before a service runs, as `understudy serve` does.

    In a new checkout that takes some twenty seconds, and a service whose thread waits for the
    compiler refuses requests after six.
    """
    precompile()
