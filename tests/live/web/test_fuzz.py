"""Whatever is sent: no answer is a fault of the service, and what is malformed changes nothing."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from hypothesis import HealthCheck, given, settings

from tests.support.live.local_server import serving_store
from tests.support.live.malformed_requests import PLAIN, STUDIES, Sent, malformed
from tests.support.live.temporary_stores import add_tokens

pytestmark = pytest.mark.plain

TOKEN = "us_fuzz"
ENDLESS = "live$"
CACHE = 'INSERT INTO "snapshots"'  # what is known already, kept now and then


@dataclass(frozen=True)
class Running:
    """A service with two studies, and its store."""

    store: Path
    client: httpx.Client

    def dump(self) -> list[str]:
        """All that the store holds, and the policies."""
        with closing(sqlite3.connect(f"{self.store.as_uri()}?mode=ro", uri=True)) as connection:
            tables = [line for line in connection.iterdump() if CACHE not in line]
        policy = self.client.get("/v1/studies/plain/snapshot")
        assert policy.status_code == 200
        return [*tables, policy.text]


@contextmanager
def running(folder: Path, token: str | None = None) -> Iterator[Running]:
    store = folder / "store.db"
    headers = {}
    if token is not None:
        add_tokens(store, write=token)
        headers = {"authorization": f"Bearer {token}"}
    with (
        structlog.testing.capture_logs() as logs,
        serving_store(store) as url,
        httpx.Client(base_url=url, headers=headers, timeout=60.0) as client,
    ):
        for study in STUDIES:
            assert client.post("/v1/studies", json=study).status_code == 201
        yield Running(store, client)
    assert [entry for entry in logs if entry["log_level"] in {"error", "critical"}] == []


@pytest.mark.parametrize(
    ("paths", "examples"),
    [("/(events|draw)$", 5), pytest.param("", 15, marks=pytest.mark.full)],
    ids=["some", "all"],
)
def test_whatever_is_sent_is_answered_as_described(
    tmp_path: Path, paths: str, examples: int
) -> None:
    import schemathesis  # noqa: PLC0415 - half a second that only this test needs
    from schemathesis.core.result import Ok  # noqa: PLC0415

    with running(tmp_path, TOKEN) as service:
        url, headers = str(service.client.base_url), dict(service.client.headers)
        document = schemathesis.openapi.from_url(f"{url}/openapi.json")
        chosen = document.include(path_regex=paths).exclude(path_regex=ENDLESS)
        found = chosen.get_all_operations()
        operations = [one.ok() for one in found if isinstance(one, Ok)]
        assert len(operations) >= 2
        for operation in operations:
            for mode in schemathesis.GenerationMode:
                for repair in (False, True):
                    hold(operation, mode, headers, examples, repair=repair)


def hold(
    operation: Any, mode: Any, headers: dict[str, str], examples: int, *, repair: bool
) -> None:
    """Send what the document allows, or what it does not; repaired, it is about a study."""
    from schemathesis.specs.openapi import checks  # noqa: PLC0415 - as above

    # Of what no schema can say: whether an action is one of the study's; and how often a wrong
    # token may be tried.
    unfit = [checks.positive_data_acceptance, checks.ignored_auth]
    if repair:
        unfit.append(checks.negative_data_rejection)

    @given(operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def holds(case: Any) -> None:
        if repair:
            repaired(case)
        case.call_and_validate(headers=headers, excluded_checks=unfit)

    holds()


def repaired(case: Any) -> None:
    """About a study that exists, with an action that it has."""
    if "study" in case.path_parameters:
        case.path_parameters["study"] = PLAIN["name"]
    if isinstance(case.body, dict) and isinstance(case.body.get("action"), str | int):
        case.body |= {"action": "a", "propensity": 0.5}
        case.body.pop("context", None)


MANY = [600, pytest.param(10_000, marks=pytest.mark.full)]


@pytest.mark.parametrize("requests", MANY)
def test_what_is_malformed_changes_nothing(tmp_path: Path, requests: int) -> None:
    rng = random.Random(requests)
    event = {"id": "e", "action": "a", "propensity": 0.5, "reward": 1.0}
    with running(tmp_path) as service:
        events = "/v1/studies/plain/events"
        assert service.client.post(events, json=event).status_code == 200
        before = service.dump()
        told: Counter[int] = Counter()
        for _ in range(requests):
            told[refused(service.client, malformed(rng))] += 1
        assert service.dump() == before
        assert set(told) == {400, 403, 404, 405, 413, 415, 422}
        assert service.client.post(events, json={**event, "id": "f"}).json()["status"] == "accepted"
        assert service.client.get("/v1/studies/plain").json()["learned"] == 2
        assert service.dump() != before


def refused(client: httpx.Client, sent: Sent) -> int:
    """The status; the answer says what was wrong."""
    answer = client.request(sent.method, sent.path, content=sent.body, headers=sent.headers)
    assert 400 <= answer.status_code < 500, (sent, answer.text)
    assert answer.headers["content-type"] == "application/json", sent
    found = answer.json()
    assert {"error", "message"} <= set(found) <= {"error", "message", "fields"}
    assert found["error"]
    assert found["message"]
    assert "\n" not in found["message"]
    return answer.status_code
