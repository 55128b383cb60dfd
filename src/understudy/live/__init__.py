"""An understudy beside production: a durable service that learns while production acts.

This package exports the client of the service.
"""

from __future__ import annotations

from understudy.deprecated import old_module_names
from understudy.live.client.async_client import AsyncClient, AsyncStudyClient
from understudy.live.client.background import Background, Delivery
from understudy.live.client.canary import mixture
from understudy.live.client.client import Client, StudyClient
from understudy.live.models import BatchTaken, Drawn, RefusedEvent, Taken

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

__getattr__ = old_module_names(__name__, {"Study": StudyClient, "AsyncStudy": AsyncStudyClient})
