"""An understudy beside production: a durable service that learns while production acts.

What is imported here is its client, which needs nothing but httpx.
"""

from __future__ import annotations

from understudy.live.client.async_client import AsyncClient, AsyncStudy
from understudy.live.client.background import Background
from understudy.live.client.canary import mixture
from understudy.live.client.client import Client, Study
from understudy.live.client.outbox import Delivery
from understudy.live.client.received import BatchTaken, Drawn, RefusedEvent, Taken

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
