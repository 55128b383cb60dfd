"""The service without its network: studies, the writer, and reads that need the store."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

import numpy as np
import structlog

from understudy.constraints import Array
from understudy.errors import InvalidArgument, UnderstudyError
from understudy.live.clock import ServiceClock
from understudy.live.decision_log import as_lines
from understudy.live.ingest import REASONS, Outcome
from understudy.live.live_study import LiveStudy
from understudy.live.models import Event
from understudy.live.reader_thread import MOST_READERS, ReaderThread
from understudy.live.snapshot_saver import let_others_run
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store import open_reader, open_store
from understudy.live.store.records import TokenRecord, moment
from understudy.live.store.sql import BATCH
from understudy.live.writer import STALLED, Writer
from understudy.logs.policy import Policy, from_text
from understudy.logs.schema import Label

MOST_STUDIES = 1_000  # each is looked at twenty times a second, and kept in memory

log = structlog.get_logger("understudy.live")


class HttpError(UnderstudyError):
    """A refused request: the HTTP status, a short name for programs, a sentence for people."""

    def __init__(
        self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.error = error
        self.headers = headers
        super().__init__(message)


class Service:
    """Runs the studies of one store between `start` and `stop`, in one event loop.

    `where` is the path or URL of the store.
    """

    def __init__(self, where: str, clock: ServiceClock | None = None) -> None:
        self.where = where
        self.rng = np.random.default_rng()
        self.stopped = asyncio.Event()
        self.writer = Writer(open_store(where), clock or ServiceClock())
        self._reader_slots = threading.Semaphore(MOST_READERS)
        self._promoted: dict[tuple[str, int], datetime] = {}

    def open(self) -> None:
        """Become the writer of the store, before the port is open: errors go to the terminal."""
        self.writer.open()

    async def start(self) -> None:
        """Start the writer."""
        if not self.writer.is_open:
            await asyncio.to_thread(self.open)
        self.writer.start(asyncio.get_running_loop())

    async def stop(self) -> bool:
        """Stop the writer when all queued events are on disk; False if the store did not answer."""
        self.stopped.set()
        return await self.writer.stop()

    @property
    def studies(self) -> dict[str, LiveStudy]:
        return self.writer.studies

    def tokens(self) -> list[TokenRecord]:
        """Return the tokens that the writer read from the store within the last seconds."""
        return self.writer.tokens

    def study(self, name: str) -> LiveStudy:
        """Return the study of this name, or raise `HttpError`."""
        found = self.writer.studies.get(name)
        if found is None:
            message = f"there is no study {name[:64]!r}; GET /v1/studies lists them"
            raise HttpError(404, "unknown study", message)
        return found

    async def create(self, spec: StudySpec) -> LiveStudy:
        """Create a study."""
        return await self._create(await asyncio.to_thread(_begun, spec), None)

    async def create_from_policy(
        self,
        name: str,
        text: str,
        *,
        reward_wait: float | None,
        default_reward: float | None,
        propensity_vectors: bool = False,
    ) -> LiveStudy:
        """Create a study that continues a policy.json."""

        def begin() -> StudyState:
            policy = from_text(text)
            spec = StudySpec.from_policy(
                name,
                policy,
                reward_wait=reward_wait,
                default_reward=default_reward,
                propensity_vectors=propensity_vectors,
            )
            return _begun(spec, policy)

        return await self._create(await asyncio.to_thread(begin), text)

    async def _create(self, begun: StudyState, base: str | None) -> LiveStudy:
        created: LiveStudy = await self.writer.run(lambda: self._add_study(begun, base))
        return created

    def _add_study(self, begun: StudyState, base: str | None) -> LiveStudy:
        """Add a study, in the writer's thread; `base` is the policy.json that it continues."""
        spec = begun.spec
        same = self.writer.studies.get(spec.name)
        if same is not None:
            # A study keeps the rules of its creation, which an older release may have made.
            wanted = spec.model_copy(update={"rules": same.spec.rules})
            if (same.spec, same.record.base) == (wanted, base):
                return same  # idempotent: the client did not get the first answer
            message = f"there is another study {spec.name!r} already; choose another name"
            raise HttpError(409, "exists", message)
        if len(self.writer.studies) >= MOST_STUDIES:
            raise HttpError(409, "too many", f"there are {MOST_STUDIES:,} studies already")
        store = self.writer.store
        record = store.add_study(spec.name, spec.model_dump_json(), base, self.writer.now())
        study = LiveStudy(record, store, self.writer.clock.outages, begun)
        self.writer.studies = {**self.writer.studies, spec.name: study}
        return study

    async def archive(self, name: str) -> LiveStudy:
        """Archive a study: it accepts no new decisions, and keeps what it learned."""
        self.study(name)
        archived: LiveStudy = await self.writer.run(lambda: self._archive(name))
        return archived

    def _archive(self, name: str) -> LiveStudy:
        study = self.study(name)  # again: the store may have been opened again meanwhile
        if study.record.archived_at is None:
            now = self.writer.now()
            self.writer.store.archive(study.record.key, now)
            study.record = dataclasses.replace(study.record, archived_at=now)
        return study

    async def ingest(self, study: LiveStudy, events: Sequence[Event]) -> list[Outcome]:
        """Write valid events of a study; return their outcomes when they are on disk."""
        outcomes = await self.writer.submit(study, events)
        if all(outcome.status == "archived" for outcome in outcomes):
            raise HttpError(409, "archived", REASONS["archived"])
        return outcomes

    def draw(self, probabilities: Array, study: LiveStudy) -> tuple[Label, float]:
        """Draw an action; return it with its probability."""
        index = int(self.rng.choice(len(probabilities), p=probabilities))
        return study.spec.labels.labels[index], float(probabilities[index])

    def log_lines(self, study: LiveStudy) -> Iterator[str]:
        """Yield the processed decisions as NDJSON, many lines at a time."""
        with self._reader() as reader:
            key, last, rows = study.record.key, study.state.seq, study.spec.rows_at_a_time(BATCH)
            batches = reader.read(lambda store: store.batches(key, last, most=rows))
            while decisions := reader.read(lambda _: next(batches, None)):
                yield as_lines(decisions, study.spec)

    def _reader(self) -> ReaderThread:
        return ReaderThread(partial(open_reader, self.where), self._reader_slots, STALLED)

    def promoted_since(self, study: LiveStudy, state: StudyState) -> datetime | None:
        """Return the time of the decision at which promotion was first justified."""
        seq = state.promoted_seq
        if seq is None:
            return None
        key = (study.spec.name, seq)
        if key not in self._promoted:
            at = study.record.created_at
            if seq:
                with self._reader() as reader:
                    found = reader.read(lambda store: store.decisions(study.record.key, seq - 1, 1))
                if not found:
                    raise InvalidArgument(
                        "seq", seq, "there is no such decision", "audit the store"
                    )
                at = found[0].decided_at
            self._promoted[key] = moment(at)
        return self._promoted[key]


def _begun(spec: StudySpec, base: Policy | None = None) -> StudyState:
    """Return the state of a new study; raise if it could not be saved or shown."""
    try:
        state = StudyState.begin(spec, base)
        state.snapshot(let_others_run)
        _ = state.result
    except UnderstudyError:
        raise
    except Exception as error:
        log.warning("a study that cannot begin", study=spec.name, exc_info=error)
        reason = f"its study cannot begin ({type(error).__name__})"
        if base is None:
            remedy = "name another learner"
            raise InvalidArgument("learner", spec.learner, reason, remedy) from error
        remedy = "send one that `understudy learn` or a service wrote"
        raise InvalidArgument("policy", None, reason, remedy) from error
    return state
