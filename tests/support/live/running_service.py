"""The service with its writer's thread, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from understudy.live.service import Service
from understudy.live.spec import Event, StudySpec

__all__ = ["Event", "Service", "served", "study_spec"]


def study_spec(name: str) -> StudySpec:
    """A study of two actions."""
    return StudySpec.of({"name": name, "actions": ["a", "b"]})


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Service]:
    """The service on the store at a path, with the study 'ads'."""
    service = Service(str(path))
    await service.start()
    try:
        await service.create(study_spec("ads"))
        yield service
    finally:
        await service.stop()
