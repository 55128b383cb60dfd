"""The service as people start it: a process of its own, killed and started again at will."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

__all__ = ["COMMAND", "PATIENCE", "Server"]

COMMAND = (sys.executable, "-m", "understudy", "serve")
LISTENING = "listening on "
PATIENCE = 300.0  # seconds until a process that neither starts nor ends hangs, however slow


class Server:
    """`understudy serve` on a store, as a context: it runs inside, and is gone afterwards.

    It listens on the same port after every start, so that clients find it again. `kill` ends it
    as a power cut would; `stop` asks it to end in order, and gives its exit code. A `change` is
    Python that runs before the command.
    """

    def __init__(
        self, store: str | Path, *options: str, port: int = 0, change: str | None = None
    ) -> None:
        self.store = str(store)
        self.port = port
        program = f"from understudy.cli import main; {change}; main()"
        self._command = COMMAND if change is None else (sys.executable, "-c", program, "serve")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def said(self) -> str:
        """What the newest process has written to its standard error so far."""
        return os.pread(self._said.fileno(), 1 << 24, 0).decode()

    def spawn(self) -> None:
        """Start it, and do not wait."""
        assert not self.running
        os.ftruncate(self._said.fileno(), 0)
        os.lseek(self._said.fileno(), 0, os.SEEK_SET)
        where = ("--store", self.store, "--port", str(self.port))
        self._process = subprocess.Popen(
            (*self._command, *where, *self._options), stdin=subprocess.DEVNULL, stderr=self._said
        )

    def wait_until_it_listens(self) -> None:
        """Or fail, with what it said."""
        deadline = time.monotonic() + PATIENCE
        while LISTENING not in self.said:
            assert self.running, f"it ended with {self.exit_code}: {self.said}"
            assert time.monotonic() < deadline, f"it does not listen: {self.said}"
            time.sleep(0.01)
        where = self.said.partition(LISTENING)[2].split()[0]
        self.port = int(where.rpartition(":")[2])

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.spawn()
        self.wait_until_it_listens()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int:
        """Of the newest process, once it ends."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def tell(self, what: signal.Signals) -> None:
        """Send a signal, and do not wait."""
        assert self._process is not None
        self._process.send_signal(what)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing said."""
        self.tell(signal.SIGKILL)
        assert self.exit_code == -signal.SIGKILL

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.tell(signal.SIGTERM)
        return self.exit_code

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Leave nothing behind."""
        if self.running:
            self.kill()
        self._said.close()
