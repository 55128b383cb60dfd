"""The service without its network: studies, the writer, and those who look."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime

import numpy as np
import structlog

from understudy.constraints import Array
from understudy.errors import InvalidArgument, UnderstudyError
from understudy.live.audit import in_order
from understudy.live.declined import Declined
from understudy.live.export import as_lines
from understudy.live.spec import Event, StudySpec
from understudy.live.standing import StudyState
from understudy.live.store.opening import open_reader, open_store
from understudy.live.store.records import StudyRecord, TokenRecord, moment
from understudy.live.study import LiveStudy
from understudy.live.taking import REASONS, Outcome
from understudy.live.writer import Writer
from understudy.logs.policy import from_text
from understudy.logs.schema import Label

__all__ = ["Service"]

MOST_STUDIES = 1_000

log = structlog.get_logger("understudy.live")


def _try(spec: StudySpec, base: str | None) -> None:
    """What cannot begin, be kept or be shown is not created."""
    try:
        standing = StudyState.begin(spec, base)
        standing.snapshot()
        _ = standing.report
    except UnderstudyError:
        raise
    except Exception as error:
        log.warning("a study that cannot begin", study=spec.name, exc_info=error)
        remedy = "send one that `understudy learn` or a service wrote"
        raise InvalidArgument("policy", "policy.json", "it cannot be used", remedy) from error


class Service:
    """What runs between `start` and `stop`, in one event loop."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.rng = np.random.default_rng()
        self.stopped = asyncio.Event()
        self.writer = Writer(open_store(where))
        self._promoted: dict[tuple[str, int], datetime] = {}

    def open(self) -> None:
        """Become the writer of the store, before anybody listens: what is wrong with it is said."""
        self.writer.open()

    async def start(self) -> None:
        """Begin to take events."""
        if not self.writer.is_open:
            await asyncio.to_thread(self.open)
        self.writer.start(asyncio.get_running_loop())

    async def stop(self) -> None:
        """Write all that waits, and let go."""
        self.stopped.set()
        await asyncio.to_thread(self.writer.stop)

    @property
    def studies(self) -> dict[str, LiveStudy]:
        return self.writer.studies

    def tokens(self) -> list[TokenRecord]:
        """Those that the store had a moment ago; it need not be asked for every request."""
        return self.writer.tokens

    def study(self, name: str) -> LiveStudy:
        """The study of this name, or it is `Declined`."""
        found = self.writer.studies.get(name)
        if found is None:
            message = f"there is no study {name[:64]!r}; GET /v1/studies lists them"
            raise Declined(404, "unknown study", message)
        return found

    async def create(self, spec: StudySpec, base: str | None = None) -> LiveStudy:
        """A new study, from nothing or from a policy.json."""
        await asyncio.to_thread(_try, spec, base)
        created: LiveStudy = await self.writer.ask(lambda: self._created(spec, base))
        return created

    def _created(self, spec: StudySpec, base: str | None) -> LiveStudy:
        same = self.writer.studies.get(spec.name)
        if same is not None:
            if (same.record.spec, same.record.base) == (spec.model_dump_json(), base):
                return same  # an answer that was lost is asked for again
            message = f"there is another study {spec.name!r} already; choose another name"
            raise Declined(409, "exists", message)
        if len(self.writer.studies) >= MOST_STUDIES:
            raise Declined(409, "too many", f"there are {MOST_STUDIES:,} studies already")
        store = self.writer.store
        record = store.add_study(spec.name, spec.model_dump_json(), base, self.writer.now())
        study = LiveStudy(record, store)
        self.writer.studies = {**self.writer.studies, spec.name: study}
        return study

    async def create_from(
        self, name: str, text: str, *, reward_wait: float | None, default_reward: float | None
    ) -> LiveStudy:
        """A study that goes on from a policy.json."""
        policy = await asyncio.to_thread(from_text, text)
        spec = StudySpec.going_on(
            name, policy, reward_wait=reward_wait, default_reward=default_reward
        )
        return await self.create(spec, text)

    async def archive(self, name: str) -> LiveStudy:
        """Take no more events; what was learned stays."""
        study = self.study(name)
        await self.writer.ask(lambda: self._archived(study))
        return study

    def _archived(self, study: LiveStudy) -> None:
        if study.record.archived_at is None:
            now = self.writer.now()
            self.writer.store.archive(study.record.key, now)
            study.record = dataclasses.replace(study.record, archived_at=now)

    async def take(self, study: LiveStudy, events: Sequence[Event]) -> list[Outcome]:
        """Events that fit the study; answered when they are on disk."""
        if study.record.archived_at is not None and all(
            event.action is not None for event in events
        ):
            raise Declined(409, "archived", REASONS["archived"])
        return await self.writer.submit(study, events)

    def draw(self, probabilities: Array, study: LiveStudy) -> tuple[Label, float]:
        """An action and its probability."""
        index = int(self.rng.choice(len(probabilities), p=probabilities))
        return study.spec.labels.labels[index], float(probabilities[index])

    def log_of(self, study: LiveStudy) -> Iterator[str]:
        """What was learned from so far, as NDJSON, a stretch at a time."""
        with closing(open_reader(self.where)) as reader:
            for decisions in in_order(reader, study.record.key, study.standing.seq):
                yield as_lines(decisions, study.spec)

    def promoted_since(self, study: LiveStudy, standing: StudyState) -> datetime | None:
        """When the decision was made with which promotion was first justified."""
        seq = standing.promoted_seq
        if seq is None:
            return None
        key = (study.spec.name, seq)
        if key not in self._promoted:
            self._promoted[key] = moment(self._time_of(study.record, seq))
        return self._promoted[key]

    def _time_of(self, record: StudyRecord, seq: int) -> int:
        if not seq:
            return record.created_at
        with closing(open_reader(self.where)) as reader:
            found = reader.decisions(record.key, seq - 1, 1)
        if not found:
            raise InvalidArgument("seq", seq, "there is no such decision", "audit the store")
        return found[0].decided_at
