"""`understudy serve`, `audit`, `export` and `token`, as they are typed."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import understudy as us
from tests.support.command_line import Run, understudy
from tests.support.live.temporary_stores import Place

__all__ = ["understudy"]  # a fixture

pytestmark = pytest.mark.plain

UNDERSTUDY = [sys.executable, "-c", "from understudy.cli import main; main()"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_serve_then_audit_export_and_learn(tmp_path: Path, understudy: Run) -> None:
    """One command and no configuration; what it keeps can be checked and learned from."""
    process = subprocess.Popen(
        [*UNDERSTUDY, "serve", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("compiling what learns")
        listening = re.fullmatch(
            r"listening on (http://127\.0\.0\.1:\d+)\n", process.stderr.readline()
        )
        assert listening is not None
        second = subprocess.run(
            [*UNDERSTUDY, "serve", "--port", "0"], capture_output=True, text=True, check=False
        )
        assert second.returncode == 2
        assert f"process {process.pid}" in second.stderr
        with us.live.Client(listening[1]) as client:
            client.create_study("ads", ["a", "b"])
            study = client.open("ads")
            for i in range(20):
                study.observe("ab"[i % 2], float(i % 2), propensity=0.5)
            snapshot = json.loads(httpx.get(f"{listening[1]}/v1/studies/ads/snapshot").text)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stderr.close()  # type: ignore[union-attr]
    audited = understudy("audit", "--json")
    assert (audited.returncode, json.loads(audited.stdout)[0]["folded"]) == (0, 20)
    assert "equal" in understudy("audit").stdout
    exported = understudy("export", "ads", "--out", "log.parquet")
    assert exported.stdout == "wrote 20 decisions to log.parquet\n"
    learned = us.logs.learn(tmp_path / "log.parquet", actions=["a", "b"]).policy
    assert json.loads(learned.to_json())["state"] == snapshot["state"]


def test_tokens_are_shown_once_listed_replaced_and_removed(tmp_path: Path, understudy: Run) -> None:
    token = understudy("token", "add", "ci", "--scope", "read")
    assert re.fullmatch(r"us_[\w-]{43}\n", token.stdout)
    assert understudy("token", "list").stdout == "ci\tread\n"
    assert token.stdout.strip().encode() not in (tmp_path / "understudy.db").read_bytes()
    same = understudy("token", "add", "ci", "--scope", "write")
    assert (same.returncode, same.stdout, len(same.stderr.splitlines())) == (2, "", 1)
    assert "--replace" in same.stderr
    other = understudy("token", "add", "ci", "--scope", "write", "--replace")
    assert other.stdout not in {"", token.stdout}
    assert understudy("token", "list").stdout == "ci\twrite\n"
    removed = understudy("token", "remove", "ci")
    assert removed.stdout.startswith("removed; there is none left")
    again = understudy("token", "remove", "ci")
    assert (again.returncode, len(again.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", "--store", "missing.db"),
        ("export", "ads", "--store", "missing.db", "--out", "x.parquet"),
    ],
)
def test_a_missing_store_is_one_line(arguments: tuple[str, ...], understudy: Run) -> None:
    found = understudy(*arguments)
    assert found.returncode == 2
    assert "store = " in found.stderr
    assert "there is no such file" in found.stderr
    assert len(found.stderr.splitlines()) == 1


IN_TURN = """
import json, sys
from understudy.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        print(ended.code, flush=True)
"""


def test_what_serve_refuses_is_one_line_and_leaves_no_store(tmp_path: Path) -> None:
    """One process for all of it: a refused `serve` closes its socket, or `-X dev` would warn."""
    (tmp_path / "text.txt").write_text("hello, this is no database at all\n" * 99)
    held = Place("held.store")
    with held.opened, socket.create_server(("127.0.0.1", 0)) as taken:
        held.writer()
        port = str(taken.getsockname()[1])
        refused = {
            ("--store", "mysql://host/db"): "store = .*there is no store of this kind",
            ("--store", "nowhere/u.db"): "store = .*there is no folder",
            ("--store", "."): "store = .*this is a folder",
            ("--store", "text.txt"): "store = .*not an SQLite database",
            ("--store", "held.store"): "another server writes to .*held.store",
            ("--port", port): rf"port = {port}: 127\.0\.0\.1 cannot be listened on.*--port",
        }
        commands = [["serve", "--port", "0", *options] for options in refused]
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", IN_TURN, json.dumps(commands)],
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.split() == ["2"] * len(refused)
    lines = done.stderr.splitlines()
    assert len(lines) == len(refused)
    for line, words in zip(lines, refused.values(), strict=True):
        assert re.search(words, line)
    assert list(tmp_path.glob("*.db")) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_a_service_without_tokens_is_not_open_to_others(host: str, understudy: Run) -> None:
    refused = understudy("serve", "--host", host, "--port", "0")
    assert refused.returncode == 2
    assert "host = " in refused.stderr
    assert "understudy token add NAME --scope write" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
