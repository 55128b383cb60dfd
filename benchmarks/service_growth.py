"""The live service as its store grows: memory, the time of an old reward, the time of a restart.

    python -m benchmarks.service_growth            a million events; on PostgreSQL: --store URL

Half of the events are whole decisions, which are processed at once. The others wait for a reward,
so that most of them are no longer in memory. A reward of a random one of them must cost the same
at the end as at the beginning, and a restart after kill -9 must not process everything again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from benchmarks.service_load import free_port
from understudy.errors import UnderstudyError

__all__ = ["main", "measure"]

STAGES = 10
BATCH = 1_000
REWARDS = 300  # of random old decisions in each stage, one per request
LONGEST_START = 120.0  # seconds: the first start may have to compile
SERVE = "from understudy.cli import main; main()"
HEADERS = {"content-type": "application/json"}
STUDIES: tuple[dict[str, Any], ...] = (
    {"name": "whole", "actions": ["small", "large"]},
    {"name": "waiting", "actions": ["small", "large"], "reward_wait": 1e7},
)


@contextmanager
def service(store: str, port: int) -> Iterator[int]:
    """Run the service on a store; yield its process id when it is ready; end it by kill -9."""
    command = [sys.executable, "-c", SERVE, "serve", "--store", store, "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + LONGEST_START
            while not _is_ready(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise UnderstudyError(f"{command} does not start")
                time.sleep(0.01)
            yield process.pid
        finally:
            process.kill()


def _is_ready(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)) as connection:
        try:
            return _request(connection, "/readyz") == HTTPStatus.OK
        except OSError:
            return False


def _request(connection: http.client.HTTPConnection, path: str, body: object = None) -> int:
    text = None if body is None else json.dumps(body)
    connection.request("GET" if text is None else "POST", path, text, HEADERS)
    response = connection.getresponse()
    response.read()
    return response.status


def _memory(process: int) -> float:
    """The resident memory of a process in MiB; Linux only."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _id(number: int) -> str:
    """The id of a decision; ids come in any order, as random ones do."""
    return f"{number * 2_654_435_761 % (1 << 32):08x}-{number}"


class Sender:
    """Sends events, and counts them."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._rng = random.Random(0)
        self.sent = 0

    def _post(self, path: str, body: object) -> None:
        status = _request(self._connection, path, body)
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise UnderstudyError(f"{path} answered {status}")

    def create(self) -> None:
        for study in STUDIES:
            self._post("/v1/studies", study)

    def send(self) -> None:
        """Send a batch to each study."""
        numbers = range(self.sent, self.sent + BATCH)
        waiting = [{"id": _id(n), "action": "small", "propensity": 0.5} for n in numbers]
        whole = [{**event, "reward": self._rng.random()} for event in waiting]
        self._post("/v1/studies/waiting/batches", {"events": waiting})
        self._post("/v1/studies/whole/batches", {"events": whole})
        self.sent += BATCH

    def reward(self) -> float:
        """Reward a random decision that waits; return the milliseconds until the answer."""
        begun = time.perf_counter()
        event = {"id": _id(self._rng.randrange(self.sent)), "reward": 1.0}
        self._post("/v1/studies/waiting/events", event)
        return 1e3 * (time.perf_counter() - begun)


def measure(store: str, events: int) -> None:
    """Print a line for each stage, and one for the restart."""
    port = free_port()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    with service(store, port) as process, closing(connection):
        sender = Sender(connection)
        sender.create()
        for stage in range(1, STAGES + 1):
            while sender.sent < stage * events // (2 * STAGES):
                sender.send()
            reward = statistics.median(sender.reward() for _ in range(REWARDS))
            memory = f"{2 * sender.sent:>9,} events: {_memory(process):6.0f} MiB"
            _say(f"{memory}, a reward of an old decision {reward:5.2f} ms")
    begun = time.monotonic()
    with service(store, port):
        _say(f"restart after kill -9: {time.monotonic() - begun:.1f} s")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--store", help="a database that may be filled; by default a new file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="understudy-growth-") as folder:
        measure(options.store or f"{folder}/store.db", options.events)


if __name__ == "__main__":
    main()
