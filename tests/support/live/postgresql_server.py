"""A PostgreSQL server of the tests' own: in a temporary folder, killed and started at will."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support import programs

__all__ = ["Cluster", "postgresql"]

USER = "postgres"
SETTINGS = """
listen_addresses = '127.0.0.1'
fsync = on
max_connections = 20
shared_buffers = 32MB
"""
PATIENCE = 60  # seconds until a server that does not start is a failure


class Cluster:
    """A database server and its files.

    `kill` ends it as a power cut would, all of its processes at once; `start` recovers.
    """

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self._bin = bin_folder
        self._data = folder / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, USER, USER)
        self._run("initdb", "-D", self._data, "-U", USER, "-A", "trust", "-E", "UTF8", "-N")
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"{SETTINGS}port = {self.port}\nunix_socket_directories = '{folder}'\n")

    def url(self, database: str = "postgres") -> str:
        """What to pass as --store."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, after a crash too, and wait until it answers."""
        log = self.folder / "log"
        self._run("pg_ctl", "start", "-w", "-t", PATIENCE, "-D", self._data, "-l", log)

    def stop(self) -> None:
        """Stop it at once, so that it leaves no memory of the system behind."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self._data)

    def kill(self) -> None:
        """SIGKILL to the server and to all of its children: nothing is flushed, nothing said."""
        processes = self._processes()
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        while any(is_running(process) for process in processes):
            time.sleep(0.01)
        # In a container without init the dead stay as zombies, and look alive to the next server.
        for lock in (self._data / "postmaster.pid", *self.folder.glob(".s.PGSQL.*.lock")):
            lock.unlink(missing_ok=True)

    def pause(self) -> None:
        """Stop all of its processes: connections stay open, and nothing is answered."""
        for process in self._processes():
            os.kill(process, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        for process in self._processes():
            os.kill(process, signal.SIGCONT)

    @property
    def running(self) -> bool:
        return any(is_running(process) for process in self._processes())

    def sql(self, statement: str, database: str = "postgres") -> str:
        """What psql says to a statement."""
        here = ("-h", self.folder, "-p", self.port, "-U", USER, "-d", database)
        return self._run("psql", *here, "-qAt", "-v", "ON_ERROR_STOP=1", "-c", statement)

    def _processes(self) -> list[int]:
        """The server first, so that it cannot start others."""
        try:
            first = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0]
        except FileNotFoundError:
            return []
        children = Path(f"/proc/{first}/task/{first}/children")
        with suppress(FileNotFoundError):
            return [int(first), *map(int, children.read_text(encoding="utf-8").split())]
        return [int(first)]

    def _run(self, program: str, *arguments: object) -> str:
        command = [str(self._bin / program), *map(str, arguments)]
        if os.getuid() == 0:
            command = ["runuser", "-u", USER, "--", *command]
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            timeout=2 * PATIENCE,
        )
        assert done.returncode == 0, f"{program} failed: {done.stdout}"
        return done.stdout.strip()


def is_running(process: int) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


@contextmanager
def postgresql() -> Iterator[Cluster]:
    """A running server, for tests that are marked `needs("pg_ctl")`."""
    found = programs.find("pg_ctl")
    assert found is not None
    with tempfile.TemporaryDirectory(prefix="understudy-") as folder:  # a socket's path is short
        cluster = Cluster(Path(folder), Path(found).parent)
        cluster.start()
        try:
            yield cluster
        finally:
            if cluster.running:
                cluster.stop()
