"""The live service under load from wrk, beside its bare framework's echo, on the loopback address.

Every event is on disk before it is answered. Both servers run all the time, and wrk loads them in
turns: with 64 connections for single events, with 16 for batches of 100.
"""

from __future__ import annotations

import atexit
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from benchmarks.measurement import Benchmark, Contender, Ratio, TimedWork, Timing
from understudy.errors import UnderstudyError

__all__ = ["LIVE"]

ECHO = "the bare framework's echo, 64 connections"
SINGLE = "durable single events, 64 connections"
BATCHES = "durable events in batches of 100, 16 connections"
UNIT = "requests/s"
SINGLES = "/v1/studies/load/events"
CONNECTIONS = 64
WORK = 1_000  # a timing is the time of so many events
STUDY = '{"name": "load", "actions": ["small", "large"]}'
EVENTS, READS = "events.lua", "reads.lua"
TRIES = 240  # a minute in all: the service may have to compile its kernels first
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Servers:
    """The addresses of both servers."""

    echo: str
    live: str


@dataclass(frozen=True)
class LoadResult:
    """The result of wrk: requests, seconds, and the 99th percentile of the latency in ms."""

    requests: int
    seconds: float
    p99: float


def wrk(url: str, script: str, *arguments: object, connections: int, seconds: float) -> LoadResult:
    """Load a server for some seconds; raise if it answers other than 2xx, as that costs less."""
    path = str(files("benchmarks") / "load" / script)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", path, url]
    shown = [*command, "--", *map(str, arguments)]
    done = subprocess.run(shown, check=True, capture_output=True, text=True)
    if "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise UnderstudyError(f"the server did not answer as it should: {done.stdout}")
    total = re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)", done.stdout)
    slow = re.search(r"99%\s+([\d.]+)(us|ms|s)", done.stdout)
    assert total is not None
    assert slow is not None
    took = float(total[2]) * {**MILLISECONDS, "m": 6e4}[total[3]] / 1e3
    return LoadResult(int(total[1]), took, float(slow[1]) * MILLISECONDS[slow[2]])


def ask(
    servers: Servers, path: str, size: int, connections: int, seconds: float, *, pause: int = 0
) -> TimedWork:
    """Send events, each one once: without a pause, or with a pause of so many ms after each."""
    url = servers.echo if path == "/echo" else servers.live
    run = uuid.uuid4().hex[:12]
    found = wrk(url, EVENTS, path, size, pause, run, connections=connections, seconds=seconds)
    return TimedWork(found.seconds, found.requests * size)


def contenders(quick: bool) -> Iterator[Contender]:
    if shutil.which("wrk") is None:
        return
    servers = started()
    seconds, repeats = (1, 1) if quick else (5, 5)
    events_a_second(servers, 0.0, 1)  # warm, before the clock runs
    for name, path, size, connections in (
        (ECHO, "/echo", 1, CONNECTIONS),
        (SINGLE, SINGLES, 1, CONNECTIONS),
        (BATCHES, "/v1/studies/load/batches", 100, 16),
    ):
        run = partial(ask, servers, path, size, connections, seconds)
        unit = "events/s" if size > 1 else UNIT
        yield Contender(name, run, WORK, unit, repeats=repeats)


def latency(quick: bool) -> list[Ratio]:
    """The latency of `GET policy` while events come in at half of the highest rate."""
    if shutil.which("wrk") is None:
        return []
    servers = started()
    short, seconds = (1, 1) if quick else (5, 10)
    most = events_a_second(servers, 0.0, short)
    turn = CONNECTIONS * 1e3 / (most / 2.0)  # of one connection, in ms: an answer and a pause
    pause = turn
    for _ in range(2):  # how long an answer takes depends on how much comes in
        took = CONNECTIONS * 1e3 / events_a_second(servers, pause, short) - pause
        pause = max(1.0, turn - took)
    with ThreadPoolExecutor(1) as pool:
        ingesting = pool.submit(events_a_second, servers, pause, seconds + 2)
        time.sleep(1.0)
        path = "/v1/studies/load/policy"
        reads = wrk(servers.live, READS, path, 20, connections=8, seconds=seconds)
        share = ingesting.result() / most
    return [
        Ratio("GET policy while single events come in, p99 in ms", reads.p99, at_most=10),
        Ratio("single events a second meanwhile / the most measured", share),
    ]


def events_a_second(servers: Servers, pause: float, seconds: float) -> float:
    """Single events answered per second, if every connection pauses for so many ms after each."""
    found = ask(servers, SINGLES, 1, CONNECTIONS, seconds, pause=round(pause))
    return found.work / found.seconds


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    if SINGLE not in timings:
        return []
    single = timings[SINGLE].value / timings[ECHO].value
    return [
        Ratio(f"{SINGLE} / {ECHO}", single, at_least=0.45),
        Ratio(f"{BATCHES}, a second", timings[BATCHES].value, at_least=20_000),
    ]


def missing() -> list[str]:
    """The programs to install."""
    if shutil.which("wrk") is not None:
        return []
    return ["the live service, as wrk is not installed (apt install wrk)"]


@cache
def started() -> Servers:
    """Start both servers; they run until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    echo, live = free_port(), free_port()
    serve = "from understudy.cli import main; main()"
    store = str(folder / "store.db")
    _run([sys.executable, "-m", "benchmarks.echo", str(echo)], echo)
    _run([sys.executable, "-c", serve, "serve", "--store", store, "--port", str(live)], live)
    servers = Servers(f"http://127.0.0.1:{echo}", f"http://127.0.0.1:{live}")
    headers = {"content-type": "application/json"}
    url = f"{servers.live}/v1/studies"
    with urllib.request.urlopen(urllib.request.Request(url, STUDY.encode(), headers)):
        return servers


def _run(command: list[str], port: int) -> None:
    """Start a server, end it when this process ends, and wait until it listens."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    atexit.register(process.send_signal, signal.SIGTERM)
    for _ in range(TRIES):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.25)
    raise UnderstudyError(f"{command[1:3]} does not listen")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


LIVE = Benchmark(
    "live",
    "The live service beside its bare framework, K = 2, SQLite",
    contenders,
    ratios,
    missing,
    latency,
)
