"""An understudy beside production: a durable service that learns while production acts.

This package exports the client of the service, which needs nothing but httpx.
"""

from __future__ import annotations

import warnings
from typing import Any

from understudy.live.client.async_client import AsyncClient, AsyncStudyClient
from understudy.live.client.background import Background, Delivery
from understudy.live.client.calls import BatchTaken, Drawn, RefusedEvent, Taken
from understudy.live.client.canary import mixture
from understudy.live.client.client import Client, StudyClient

__all__ = [
    "AsyncClient",
    "AsyncStudyClient",
    "Background",
    "BatchTaken",
    "Client",
    "Delivery",
    "Drawn",
    "RefusedEvent",
    "StudyClient",
    "Taken",
    "mixture",
]

RENAMED = {"Study": StudyClient, "AsyncStudy": AsyncStudyClient}  # the names of 0.5.0


def __getattr__(name: str) -> Any:
    if name not in RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = RENAMED[name]
    message = f"understudy.live.{name} is now understudy.live.{new.__name__}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return new
