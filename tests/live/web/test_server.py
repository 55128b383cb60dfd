"""Start and end of the service, `understudy.live.web.server`: signals, a lost standard error."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.live.server_process import COMMAND, PATIENCE

pytestmark = pytest.mark.plain

# The service, to which one function is not what it was.
PROGRAM = """
import os, signal, sys, threading
from pkgutil import resolve_name
from understudy.cli import main
import understudy.live.web.server as server

def during(path, what):
    module, _, name = path.rpartition(".")
    owner = resolve_name(module)
    real = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: what() or real(*given, **named))

def stop():
    os.kill(os.getpid(), signal.SIGTERM)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def hang():
    threading.Event().wait()

"""
HANGS = "server.GRACE = 2; during('understudy.live.store.sql.Store.close', hang)"
DURING_THE_START = [
    "understudy.live.web.server.Service.open",
    "uvicorn.Server.run",
    "understudy.live.web.server.Service.start",
    *(
        pytest.param(between, marks=pytest.mark.full)
        for between in (
            "understudy.live.web.server.precompile",
            "gc.collect",
            "uvicorn.Server.startup",
        )
    ),
]


# No event comes to these services, so they need no compiled code, which takes long to load.
UNCOMPILED = {**os.environ, "NUMBA_DISABLE_JIT": "1"}


def run(change: str, store: Path, env: dict[str, str] = UNCOMPILED) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", f"{PROGRAM}{change}\nmain()"]
    options = ["serve", "--port", "0", "--store", str(store)]
    return subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=env)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and standard error; an error if it does not end."""
    try:
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, said


def is_closed(store: Path) -> bool:
    """Whether the last process has closed a store: SQLite then removes its journal."""
    return store.exists() and not store.with_name(f"{store.name}-wal").exists()


@pytest.mark.parametrize("moment", DURING_THE_START)
def test_a_signal_during_the_start_ends_the_service(moment: str, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    what = "interrupt" if moment.endswith("run") else "stop"
    code, said = end_of(run(f"during({moment!r}, {what})", store))
    assert code == 0, said
    assert "Traceback" not in said
    assert is_closed(store)


@pytest.mark.parametrize(
    "delay", [0.9, 2.5, *(pytest.param(s, marks=pytest.mark.full) for s in (0.6, 1.2, 1.5, 2.0))]
)
def test_a_signal_at_any_time_ends_the_service(delay: float, tmp_path: Path) -> None:
    """The delay only chooses the moment: all of them must end, in order once there is a store."""
    store = tmp_path / "store.db"
    process = run("", store, {**os.environ})
    time.sleep(delay)
    process.send_signal(signal.SIGINT if delay in (0.9, 1.5) else signal.SIGTERM)
    code, said = end_of(process)
    if "compiling" in said:
        assert code == 0, said
        assert is_closed(store)


def test_a_signal_before_the_store_is_opened_ends_the_process(tmp_path: Path) -> None:
    """A KeyboardInterrupt would be lost where native code calls Python, as here a callback."""
    change = """
import weakref
def interrupt_a_callback():
    class Native: pass
    native = Native()
    weakref.finalize(native, interrupt)
    del native
during('understudy.cli.service_commands._live_store', interrupt_a_callback)
"""
    assert end_of(run(change, tmp_path / "store.db"))[0] == 130
    assert not list(tmp_path.iterdir())


def test_a_signal_while_a_store_cannot_be_opened_is_no_error(tmp_path: Path) -> None:
    change = """
from understudy.errors import StoreUnavailable
def fail():
    stop()
    raise StoreUnavailable("it hangs")
during('understudy.live.service.Service.open', fail)
"""
    assert end_of(run(change, tmp_path / "store.db")) == (0, "")


def test_a_signal_does_not_wait_for_the_compiler(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    process = run("during('understudy.live.web.server.precompile', hang)", store)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("compiling")
    process.send_signal(signal.SIGTERM)
    assert end_of(process)[0] == 0
    assert is_closed(store)


def test_a_store_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    """It ends after its grace, and says that it did not close the store."""
    process = run(HANGS, tmp_path / "store.db")
    assert process.stderr is not None
    while "listening" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    code, said = end_of(process)
    assert code == 1
    line = json.loads(said.splitlines()[-1])
    assert line["event"] == "the service ends without closing its store"
    assert "within 2 seconds" in line["reason"]
    assert "Traceback" not in said


@contextmanager
def started(shell: str, store: Path, stderr: int | None = None) -> Iterator[int]:
    """The port of a service that a line of shell starts, which says `"$@"`; it must end well."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]  # it may have no way to say which one it chose
    command = [*COMMAND, "--store", str(store), "--port", str(port)]
    command = ["/bin/sh", "-c", shell, "sh", *command]
    process = subprocess.Popen(command, env=UNCOMPILED, stderr=stderr)
    deadline = time.monotonic() + PATIENCE
    try:
        while not answers(port):
            assert process.poll() is None, "it has ended"
            assert time.monotonic() < deadline, "it does not start"
            time.sleep(0.05)
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()


def answers(port: int) -> bool:
    try:
        # Else httpx reads all certificates of the system for each request.
        return httpx.get(f"http://127.0.0.1:{port}/readyz", verify=False).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    "lost", ["2>/dev/full", "<&- >&- 2>&-", pytest.param("2>&-", marks=pytest.mark.full)]
)
def test_the_service_starts_without_a_standard_error(lost: str, tmp_path: Path) -> None:
    with started(f'exec "$@" {lost}', tmp_path / "store.db"):
        pass


def test_few_open_files_allow_few_connections(tmp_path: Path) -> None:
    """Silent connections do not use up the files of the system's limit."""
    with started('ulimit -n 200; exec "$@"', tmp_path / "store.db") as port, ExitStack() as held:
        for _ in range(300):
            held.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
        assert answers(port)


@pytest.mark.parametrize("lost", ["2>&-", "2>/dev/full"])
def test_a_refused_start_without_a_standard_error_has_its_exit_code(lost: str) -> None:
    command = [*COMMAND, "--store", "/nowhere/store.db", "--port", "0"]
    done = subprocess.run(["/bin/sh", "-c", f'exec "$@" {lost}', "sh", *command], check=False)
    assert done.returncode == 2


def test_the_service_needs_no_limit_that_windows_lacks() -> None:
    """A name that is None in `sys.modules` cannot be imported."""
    program = """
import sys
sys.modules["resource"] = None
from understudy.live.web import server
assert server.configure(None).timeout_keep_alive == 15.0
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def full_pipe() -> Iterator[int]:
    """The end of a pipe to which no byte more can be written, and that is not read."""
    unread, pipe = os.pipe()
    try:
        os.set_blocking(pipe, False)
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, bytes(1 << 16))  # as much of it as there is room for
        os.set_blocking(pipe, True)
        yield pipe
    finally:
        os.close(pipe)
        os.close(unread)


def test_the_service_starts_while_its_standard_error_is_full(tmp_path: Path) -> None:
    """A supervisor may start it again on the pipe that it filled before."""
    with full_pipe() as pipe, started('exec "$@"', tmp_path / "store.db", pipe):
        pass


@pytest.mark.parametrize(
    ("change", "code"), [("", 0), (HANGS, 1)], ids=["the store closes", "the store hangs"]
)
def test_a_log_that_is_not_read_does_not_keep_the_process(
    change: str, code: int, tmp_path: Path
) -> None:
    """A pipe holds 64 KiB: what has no room in the queue before it is dropped."""
    fill = """
import structlog
def fill():
    for _ in range(5_000):
        structlog.get_logger("understudy.live").warning("x" * 1_000)
during('understudy.live.web.server.ServiceServer.shutdown', fill)
"""
    process = run(f"{fill}{change}", tmp_path / "store.db")
    try:
        assert process.stderr is not None
        while "listening" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == code
    finally:
        process.kill()
        process.communicate()
    assert is_closed(tmp_path / "store.db") is (code == 0)
