"""Units that keep their action: a stream of their events, which knows what of it counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.live.single_study import Event, SingleStudy
from understudy.live import live_study, spec
from understudy.logs.runs.study import Study
from understudy.logs.validate import Rejected
from understudy.snapshots import as_data

__all__ = ["WAIT", "K", "Stream", "event", "small_memory"]

K = ["a", "b", "c"]
Q = np.array([0.5, 0.3, 0.2])
WAIT = 50.0


@dataclass
class Unit:
    """What a unit does, and what of it counts."""

    action: int
    rewards: list[float] = field(default_factory=list)
    changes: bool = False


class Stream:
    """Units whose events come in any order, with rewards at once, later or never.

    It knows the rules in its own words: which events count, and what they are worth.
    """

    def __init__(self, single: SingleStudy, rows: int, *, changes: float = 0.0) -> None:
        self.single, self.rows, self.changes = single, rows, changes
        self.rng = np.random.default_rng(3)
        self.units: dict[str, Unit] = {}
        self.rewards: list[Event] = []  # for the group after the next one
        self.later = self.most_in_memory = 0

    def play(self, events: int) -> None:
        waiting: list[Event] = []
        for i in range(events):
            fresh = not self.units or self.rng.random() < 0.4
            name = f"u{len(self.units)}" if fresh else str(self.rng.choice(list(self.units)[-8:]))
            waiting += self._event(i, name)
            if self.rng.random() < 0.1:
                self.single.send(*waiting)
                waiting = self.rewards
                self.rewards = []
                self.most_in_memory = max(self.most_in_memory, len(self.single.study.by_id))
                if self.rng.random() < 0.3:
                    self.single.send(*waiting)
                    waiting = []
                    self.single.wait(WAIT + 1.0)
                    self._close()
        self.single.send(*waiting, *self.rewards)
        self.single.wait(WAIT + 1.0)
        self._close()
        assert self.single.study.state.seq == len(self.units)

    def _close(self) -> None:
        """Every wait is over: no more events of these units count."""
        for unit in self.units.values():
            unit.rewards += [0.0] * (self.rows - len(unit.rewards))

    def _event(self, i: int, name: str) -> list[Event]:
        first = name not in self.units
        unit = self.units.setdefault(name, Unit(int(self.rng.choice(3, p=Q))))
        counts, action = len(unit.rewards) < self.rows, unit.action
        if not first and self.rng.random() < self.changes:
            action = (action + 1) % 3
            unit.changes |= counts
        reward, how = float(self.rng.random() < 0.2 + 0.3 * unit.action), self.rng.random()
        if counts:
            unit.rewards.append(reward if how < 0.8 else 0.25)
        self.later += not counts
        stated: dict[str, Any] = {"action": K[action], "unit": name}
        if first or self.rng.random() < 0.5:
            stated["propensity"] = float(Q[action])
        if how < 0.4:
            return [Event(id=f"e{i}", reward=reward, **stated)]
        if how < 0.8:
            self.rewards.append(Event(id=f"e{i}", reward=reward))
        return [Event(id=f"e{i}", **stated)]

    def expected(self, **declared: Any) -> Any:
        """The certificate of the log of units, by the fold of logs, as data."""
        units = list(self.units.values())
        rewards = [min(1.0, math.fsum(unit.rewards) / self.rows) for unit in units]
        valid = np.array([not unit.changes for unit in units])
        actions = np.array([unit.action for unit in units])
        log = us.Log(actions[valid], np.array(rewards)[valid], Q[actions[valid]])
        study = self.single.study.state.study
        assert study is not None
        empty = Study.begin(study.learner, us.Logged(n_actions=3, **declared), 0.95, rules=2)
        gone = actions[~valid]
        n = len(gone)
        rejected = Rejected(valid, gone, np.ones(n), np.zeros(n, dtype=bool), Q[gone])
        found = empty.after(log, rejected if n else None).certificate
        return as_data(found, "")

    def certified(self) -> Any:
        """The certificate of the study, as data."""
        study = self.single.study.state.study
        assert study is not None
        return as_data(study.certificate, "")


def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep seven events that wait, and read two units at a time."""
    monkeypatch.setattr(live_study, "MOST_IN_MEMORY", 7)
    monkeypatch.setattr(spec, "MOST_VALUES", 8)


def event(name: str, unit: str, action: str = "a", **fields: Any) -> Event:
    return Event(id=name, unit=unit, action=action, **fields)
