"""An understudy beside production: a durable service that learns while production acts.

What is imported here is its client, which needs nothing but httpx.
"""

from __future__ import annotations

from understudy.live.async_client import AsyncClient, AsyncStudy
from understudy.live.background import Background
from understudy.live.canary import mixture
from understudy.live.client import Client, Study
from understudy.live.outbox import Delivery
from understudy.live.received import BatchTaken, Drawn, RefusedEvent, Taken

__all__ = [
    "AsyncClient",
    "AsyncStudy",
    "Background",
    "BatchTaken",
    "Client",
    "Delivery",
    "Drawn",
    "RefusedEvent",
    "Study",
    "Taken",
    "mixture",
]
