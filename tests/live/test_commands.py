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

pytestmark = pytest.mark.plain

UNDERSTUDY = [sys.executable, "-c", "from understudy.cli import main; main()"]


def understudy(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UNDERSTUDY, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def test_serve_then_audit_export_and_learn(tmp_path: Path) -> None:
    """One command and no configuration; what it keeps can be checked and learned from."""
    server = subprocess.Popen(
        [*UNDERSTUDY, "serve", "--port", "0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        assert server.stderr.readline().startswith("compiling what learns")
        listening = re.fullmatch(
            r"listening on (http://127\.0\.0\.1:\d+)\n", server.stderr.readline()
        )
        assert listening is not None
        second = understudy("serve", "--port", "0", folder=tmp_path)
        assert second.returncode == 2
        assert f"process {server.pid}" in second.stderr
        with us.live.Client(listening[1]) as client:
            client.create_study("ads", ["a", "b"])
            study = client.open("ads")
            for i in range(20):
                study.observe("ab"[i % 2], float(i % 2), propensity=0.5)
            snapshot = json.loads(httpx.get(f"{listening[1]}/v1/studies/ads/snapshot").text)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        server.stderr.close()  # type: ignore[union-attr]
    audited = understudy("audit", "--json", folder=tmp_path)
    assert (audited.returncode, json.loads(audited.stdout)[0]["folded"]) == (0, 20)
    assert "equal" in understudy("audit", folder=tmp_path).stdout
    exported = understudy("export", "ads", "--out", "log.parquet", folder=tmp_path)
    assert exported.stdout == "wrote 20 decisions to log.parquet\n"
    learned = us.logs.learn(tmp_path / "log.parquet", actions=["a", "b"]).policy
    assert json.loads(learned.to_json())["state"] == snapshot["state"]


def test_others_are_let_in_with_a_token_only(tmp_path: Path) -> None:
    refused = understudy("serve", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)
    assert refused.returncode == 2
    assert "understudy token add NAME --scope write" in refused.stderr
    token = understudy("token", "add", "ci", "--scope", "read", folder=tmp_path)
    assert re.fullmatch(r"us_[\w-]{43}\n", token.stdout)
    assert understudy("token", "list", folder=tmp_path).stdout == "ci\tread\n"
    assert token.stdout.strip().encode() not in (tmp_path / "understudy.db").read_bytes()
    same = understudy("token", "add", "ci", "--scope", "write", folder=tmp_path)
    assert (same.returncode, same.stdout, len(same.stderr.splitlines())) == (2, "", 1)
    assert "--replace" in same.stderr
    other = understudy("token", "add", "ci", "--scope", "write", "--replace", folder=tmp_path)
    assert other.stdout not in {"", token.stdout}
    assert understudy("token", "list", folder=tmp_path).stdout == "ci\twrite\n"
    removed = understudy("token", "remove", "ci", folder=tmp_path)
    assert removed.stdout.startswith("removed; there is none left")
    again = understudy("token", "remove", "ci", folder=tmp_path)
    assert (again.returncode, len(again.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("audit", "--store", "missing.db"), "there is no such file"),
        (("export", "ads", "--store", "missing.db", "--out", "x.parquet"), "no such file"),
        (("serve", "--store", "mysql://host/db"), "there is no store of this kind"),
        (("serve", "--store", "nowhere/u.db"), "there is no folder"),
        (("serve", "--store", "."), "this is a folder"),
        (("serve", "--store", "text.txt"), "not an SQLite database"),
        (("serve", "--host", "192.0.2.1"), "understudy token add"),
    ],
)
def test_wrong_stores_are_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "text.txt").write_text("hello, this is no database at all\n" * 99)
    found = understudy(*arguments, folder=tmp_path)
    assert found.returncode == 2
    assert words in found.stderr
    assert "store = " in found.stderr or "host = " in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_one_line_and_leaves_no_store(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = understudy("serve", "--port", str(port), folder=tmp_path)
    assert found.returncode == 2
    (line,) = found.stderr.splitlines()
    assert f"port = {port}: 127.0.0.1 cannot be listened on" in line
    assert "--port" in line
    assert list(tmp_path.iterdir()) == []
