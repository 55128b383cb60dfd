"""The service itself, with a production that acts: as browser tests use it."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import understudy as us
from tests.support.live.local_server import serving_store

__all__ = ["RealService", "serving_real"]


class RealService:
    """Production plays all actions alike; the second one earns the most."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._sent = Counter[str]()
        self._rng = random.Random(0)

    def add(self, name: str, actions: Sequence[str] = ("small", "medium", "large")) -> object:
        """Create a study."""
        with us.live.Client(self.url) as client:
            return client.create_study(name, list(actions))

    def play(self, name: str, decisions: int) -> None:
        """Let production decide until there are so many decisions in all."""
        with us.live.Client(self.url) as client:
            labels = client.study(name)["study"]["actions"]
            events = [self._event(labels) for _ in range(decisions - self._sent[name])]
            self._sent[name] = decisions
            assert client.open(name).send(events).accepted == len(events)

    def _event(self, labels: Sequence[str]) -> dict[str, object]:
        index = self._rng.randrange(len(labels))
        reward = float(self._rng.random() < (0.7 if index == 1 else 0.3))
        return {"action": labels[index], "propensity": 1 / len(labels), "reward": reward}


@contextlib.contextmanager
def serving_real(folder: Path) -> Iterator[RealService]:
    """The service on a free port of this machine, until the test is over."""
    with serving_store(folder / "store.db") as url:
        yield RealService(url)
