"""A store of 0.5.0 opens and goes on; the service answers, and describes itself, as before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from . import live
from .compare import EXPECTED, assert_same, read
from .outside import served
from .service_names import metrics_of, shape_of_document

pytestmark = pytest.mark.plain


def old_store(folder: Path) -> Path:
    return Path(shutil.copy(EXPECTED / "live" / "understudy.db", folder))


def test_an_old_store_opens_and_goes_on(tmp_path: Path) -> None:
    """One service on a copy of it is asked all there is to ask, sent more events, and stopped.

    `opened`: state, policy, certificate and coverage of every study. `said`: what the client got
    for awaited rewards and more events. `later`: the same answers and policy.json after them.
    """
    store = old_store(tmp_path)
    parts = ("opened", "said", "later", "metrics")
    expected = {part: read("live", f"{part}.json") for part in parts}
    with served(store) as url:
        live.settle(url, expected["opened"])
        found = {"opened": live.ask_all(url), "said": live.go_on(url)}
        live.settle(url, expected["later"])
        found["later"] = live.ask_all(url, "loaded", snapshots=True)
        logs = live.logs_of(url)
        document = httpx.get(f"{url}/openapi.json", timeout=60.0).json()
        found["metrics"] = metrics_of(url)
    expected["openapi"] = shape_of_document(read("live", "openapi.json"))
    found["openapi"] = shape_of_document(document)
    expected["audit"] = read("live", "later-audit.json")
    found["audit"] = live.audited(store)
    before, after = read("live", "exported.json"), read("live", "later-exported.json")
    # 0.5.0 had a list of learners, to which a name with parameters cannot belong.
    for fields in (one for one in _fields(expected["openapi"]) if "enum" in one.get("limits", {})):
        if "lin-prod-compact" in fields["limits"]["enum"]:
            del fields["limits"]["enum"]
    # 0.5.0 did not count decisions that an archived study refused, if nothing else was sent.
    assert expected["later"]["fixed"]["study"]["body"]["refused"] == {}
    expected["later"]["fixed"]["study"]["body"]["refused"] = {"archived": 1}
    # The clock of 0.5.0 stood still in the year 2100; it goes on now.
    del expected["later"]["loaded"]["study"]["body"]["created_at"]
    for row in (row for rows in after.values() for row in rows):
        del row["time"]
    expected["logs"] = {name: [*before[name], *after[name]] for name in live.STUDIES}
    found["logs"] = logs
    assert_same(expected, found)
    for name in live.STUDIES:
        for suffix in (".ndjson", ".parquet"):
            rows = live.exported(store, name, tmp_path / f"log{suffix}")
            assert_same(expected["logs"][name], rows, f"{name}{suffix}")


def _fields(document: Any) -> Iterator[dict[str, Any]]:
    """Every object of a document."""
    if isinstance(document, dict):
        yield document
        for inner in document.values():
            yield from _fields(inner)


def test_an_old_store_passes_its_audit(tmp_path: Path) -> None:
    assert_same(read("live", "audit.json"), live.audited(old_store(tmp_path)))


@pytest.mark.parametrize("suffix", [".ndjson", ".parquet"])
@pytest.mark.parametrize("name", live.STUDIES)
def test_export(name: str, suffix: str, tmp_path: Path) -> None:
    rows = live.exported(old_store(tmp_path), name, tmp_path / f"log{suffix}")
    assert_same(read("live", "exported.json")[name], rows, name)
