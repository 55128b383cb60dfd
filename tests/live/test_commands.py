"""`understudy serve`, `audit`, `export` and `token`, as they are typed.

The end of an export is that of `understudy.live.decision_log`.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import understudy as us
from tests.support.command_line import Run, understudy
from tests.support.live.temporary_stores import Changes, Place, fresh
from understudy.live.decision_log import export

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
        ("token", "list", "--store", "missing.db"),
        ("token", "remove", "ci", "--store", "missing.db"),
        ("audit", "--accept-loss", "--store", "missing.db"),
    ],
)
def test_a_missing_store_is_one_line_and_stays_missing(
    arguments: tuple[str, ...], tmp_path: Path, understudy: Run
) -> None:
    found = understudy(*arguments)
    assert list(tmp_path.iterdir()) == []
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
def test_a_service_without_tokens_is_not_open_to_others(
    host: str, tmp_path: Path, understudy: Run
) -> None:
    refused = understudy("serve", "--host", host, "--port", "0")
    assert list(tmp_path.iterdir()) == []  # no store either
    assert refused.returncode == 2
    assert "host = " in refused.stderr
    assert "understudy token add NAME --scope write" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_export_ends_where_the_study_ended_when_it_began(tmp_path: Path) -> None:
    """A service that goes on may write faster than an export reads."""
    here, spec = Place("store.db"), '{"name": "a", "actions": ["x", "y", "z"]}'
    with here.opened:
        store = here.writer()
        record = store.add_study("a", spec, None, 1)

        def write(count: int) -> None:
            last = store.last_seq(record.key)
            decisions = fresh(record.key, count, last).decisions
            rewarded = [replace(d, reward=1.0, rewarded_at=d.seq) for d in decisions]
            store.write([Changes(record.key, rewarded)], last + count)

        def watch(*_: object) -> None:
            assert store.last_seq(record.key) < 100_000, "it does not end"
            write(20_000)  # two batches of the export

        write(15_000)
        assert export(here.reader(), record, tmp_path / "log.ndjson", 10**9, watch) == 15_000
    assert len((tmp_path / "log.ndjson").read_text(encoding="utf-8").splitlines()) == 15_000


def test_the_environment_names_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, understudy: Run
) -> None:
    monkeypatch.setenv("UNDERSTUDY_STORE", str(tmp_path / "own.db"))
    assert understudy("token", "add", "ci", "--scope", "read").returncode == 0
    assert understudy("token", "list").stdout == "ci\tread\n"
    assert (tmp_path / "own.db").exists()
    assert not (tmp_path / "understudy.db").exists()
    for command in (("serve",), ("audit",), ("export",), ("token", "remove")):
        assert "UNDERSTUDY_STORE" in understudy(*command, "--help").stdout


USERS_PASSWORD = "postgresql://ada:secret@127.0.0.1:{port}/db"
QUERYS_PASSWORD = "postgresql://ada@127.0.0.1:{port}/db?password=secret"


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs Linux's process list")
@pytest.mark.parametrize(
    ("shape", "url"),
    [
        ("--store {}", USERS_PASSWORD),
        ("--store={}", QUERYS_PASSWORD),
        pytest.param("--store {}", QUERYS_PASSWORD, marks=pytest.mark.full),
        pytest.param("--store={}", USERS_PASSWORD, marks=pytest.mark.full),
    ],
)
def test_a_password_on_the_command_line_is_hidden_and_warned_of(shape: str, url: str) -> None:
    """A database that does not answer holds the process for a look at it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = url.format(port=silent.getsockname()[1])
        arguments = ["audit", *shape.format(store).split()]
        with subprocess.Popen(
            [*UNDERSTUDY, *arguments], stderr=subprocess.PIPE, text=True
        ) as process:
            silent.accept()[0].close()
            listed = Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8")
            silent.close()
            assert process.stderr is not None
            warning, error = process.stderr.read().splitlines()
    assert "secret" not in listed + warning + error
    assert "audit --store" in listed.replace("\0", " ")
    assert "UNDERSTUDY_STORE" in warning
    assert error.startswith("understudy: store = 'postgresql://…': ")
    assert process.returncode == 2


def test_only_a_password_on_the_command_line_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, understudy: Run
) -> None:
    without = understudy("audit", "--store", "postgresql://ada@127.0.0.1:1/db")
    assert len(without.stderr.splitlines()) == 1
    monkeypatch.setenv("UNDERSTUDY_STORE", "postgresql://ada:secret@127.0.0.1:1/db")
    hidden = understudy("audit")
    assert len(hidden.stderr.splitlines()) == 1
    assert "secret" not in hidden.stderr


@pytest.mark.parametrize("url", ["postgresql://ada:secret@127.0.0.1:1/db", "understudy.db"])
def test_no_refusal_repeats_a_password(url: str, understudy: Run) -> None:
    said = understudy("serve", "--host", "0.0.0.0", "--port", "0", "--store", url)
    assert said.returncode == 2
    assert "secret" not in said.stderr
