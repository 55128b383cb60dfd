"""Wrote `expected/` with Understudy 0.5.0: what it gives for every case, and its own files.

Do not run it to make a failing test pass. A difference means that numbers, keys, tags or names
changed, which users would notice. Only 0.5.0 itself can make these files: with its sources in
another folder, `PYTHONPATH=<that folder>/src python -m tests.golden.make`. It refuses the sources
of this checkout. A case that is added later is written by 0.5.0 too.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

import understudy as us

from . import frames, live, names, values
from .cases import LEARN, PAPER, QUESTIONS, REFUSED, Learn
from .compare import EXPECTED, fingerprint, without_prose
from .outside import learned, named, placed, run, served
from .service_names import metrics_of

# Later than any test will run: the clock of a service never goes back, so that it stands still, and
# neither do decisions expire, nor does an answer depend on the day.
LARGE = 6_000  # bytes from which a file is compressed: the repository stays small
EPOCH = 4_102_444_800  # 1 January 2100, in seconds
CLOCK = """
import os, pathlib, sys, time
clock = pathlib.Path(os.environ["GOLDEN_CLOCK"])
time.time_ns = lambda: int(clock.read_text())
from understudy.cli import main
main()
"""


def write(value: Any, *parts: str, indent: int | None = None) -> None:
    """What is compared of a value, as a file of `expected/`."""
    keep(json.dumps(without_prose(value), ensure_ascii=False, indent=indent), *parts)


def keep(text: str, *parts: str) -> None:
    path = EXPECTED.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = f"{text}\n".encode()
    if len(content) <= LARGE:
        path.write_bytes(content)
    else:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content, mtime=0))


def learn(name: str, case: Learn, folder: Path) -> None:
    """The files of a case: policy.json as it is, and what was printed, of both halves."""
    out, kept = folder / name, EXPECTED / "learn" / name
    kept.mkdir(parents=True, exist_ok=True)
    found = {"first": learned(out, (*case.first, *case.options))}
    shutil.copy(out / "policy.json", kept / "policy.json")
    if found["first"]["quarantine"]:
        shutil.copy(out / "quarantine.parquet", kept / "quarantine.parquet")
    if case.second:
        found["second"] = learned(out, (*case.second, "--resume"))
        found["second"]["policy"] = json.loads((out / "policy.json").read_text(encoding="utf-8"))
    write(found, "learn", name, "said.json")


def ask() -> None:
    """`coverage` and `certify`, what is refused, and the experiments."""
    for name, arguments in QUESTIONS.items():
        write(run(*named(arguments), "--json").json, "questions", f"{name}.json")
    with TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        shutil.copy(EXPECTED / "learn" / "adaptive" / "policy.json", out)
        codes = {name: run(*placed(case, Path(folder))).code for name, case in REFUSED.items()}
        write(codes, "refused.json", indent=1)
        for name, sizes in PAPER.items():
            arguments = ("paper", name, *sizes, "--jobs", "1", "--json", "--out", folder)
            write(run(*arguments).json, "paper", f"{name}.json")


def library() -> None:
    """Snapshots, certificates, games, bounds."""
    traces = {}
    (EXPECTED / "snapshots").mkdir(parents=True, exist_ok=True)
    for name, (recipe, columns) in values.RECIPES.items():
        understudy = us.Understudy(recipe())
        first = understudy.replay(values.log_of("first", columns))
        understudy.save(EXPECTED / "snapshots" / f"{name}.json")
        second = understudy.replay(values.log_of("second", columns))
        understudy.save(EXPECTED / "snapshots" / f"{name}.after.json")
        traces[name] = values.plain(
            {
                "probability": [*first.probability, *second.probability],
                "past_horizon": second.past_horizon,
                "policy": understudy.policy(values.probe(columns)),
            }
        )
    write(traces, "traces.json")
    certificates()
    write({name: values.plain(play()) for name, play in values.GAMES.items()}, "games.json")
    write({name: values.plain(of()) for name, of in values.THEORY.items()}, "theory.json", indent=1)


def certificates() -> None:
    figures = {}
    (EXPECTED / "certificates").mkdir(parents=True, exist_ok=True)
    for name, (empty, columns, target) in values.CERTIFICATES.items():
        first = values.certificate_after(empty(), name, "first")
        second = values.certificate_after(first, name, "second")
        us.save_certificate(first, EXPECTED / "certificates" / f"{name}.json")
        us.save_certificate(second, EXPECTED / "certificates" / f"{name}.after.json")
        certified = us.certify(
            values.log_of("first", columns),
            target,
            behavior=first.behavior,
            confidence=first.confidence,
            n_actions=3,
            lambdas=first.lambdas,
            rules=1,
        )
        figures[name] = {
            "first": values.figures_of(first),
            "second": values.figures_of(second),
            "certified": values.figures_of(certified),
        }
        if name != "counted":
            other = values.certificate_after(empty(), name, "second")
            merged = first.merge(other)
            us.save_certificate(merged, EXPECTED / "certificates" / f"{name}.merged.json")
            figures[name]["merged"] = values.figures_of(merged)
    write(figures, "certificates.json")


def store() -> None:
    """A store with studies under way, and what the service answers when it is opened again."""
    (EXPECTED / "live").mkdir(parents=True, exist_ok=True)
    kept = EXPECTED / "live" / "understudy.db"
    with TemporaryDirectory() as folder:
        path, clock = Path(folder, "understudy.db"), Path(folder, "clock")

        def turn(seconds: float) -> None:
            temporary = clock.with_suffix(".new")
            temporary.write_text(str(round((EPOCH + seconds) * 1e9)))
            temporary.replace(clock)

        turn(0.0)
        os.environ["GOLDEN_CLOCK"] = str(clock)
        with served(path, ("-c", CLOCK)) as url:
            live.begin(url, turn)
            time.sleep(0.5)
        assert not path.with_name("understudy.db-wal").exists()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        shutil.copy(path, kept)
        found: dict[str, Any] = {"audit": live.audited(path), "exported": exported(path)}
        with served(path) as url:
            time.sleep(0.5)
            found["opened"] = live.ask_all(url)
            found["said"] = live.go_on(url)
            time.sleep(1.0)
            found["later"] = live.ask_all(url, "loaded", snapshots=True)
            document = httpx.get(f"{url}/openapi.json").json()  # whole: fields have names of prose
            keep(json.dumps(document, ensure_ascii=False), "live", "openapi.json")
            write(metrics_of(url), "live", "metrics.json", indent=1)
        found["later-audit"], found["later-exported"] = live.audited(path), exported(path)
        for name, before in found["exported"].items():  # what is new, to keep the file small
            rows = found["later-exported"][name]
            assert rows[: len(before)] == before
            found["later-exported"][name] = rows[len(before) :]
        for part, value in found.items():
            write(value, "live", f"{part}.json")


def exported(store: Path) -> dict[str, Any]:
    """The rows of every study, which are the same in both formats."""
    found = {}
    with TemporaryDirectory() as folder:
        for name in live.STUDIES:
            found[name] = live.exported(store, name, Path(folder, "log.ndjson"))
            assert live.exported(store, name, Path(folder, "log.parquet")) == found[name]
    return found


def public() -> None:
    write({module: names.module_names(module) for module in names.MODULES}, "names.json", indent=1)
    write(names.command_names(), "commands.json", indent=1)


def main() -> None:
    ours = Path(__file__).parents[2] / "src"
    if us.__version__ != "0.5.0" or Path(us.__file__).is_relative_to(ours):
        sys.exit("only the sources of 0.5.0 make these files: read the first lines of this script")
    shutil.rmtree(EXPECTED, ignore_errors=True)
    write(fingerprint(), "fingerprint.json", indent=1)
    with TemporaryDirectory() as folder:
        for name, case in LEARN.items():
            learn(name, case, Path(folder))
    python()
    ask()
    library()
    public()
    store()


def python() -> None:
    """What the functions of `us.logs` give for frames, and what loaded policies say."""
    write({name: of() for name, (of, _) in frames.RESULTS.items()}, "frames.json")
    write({name: frames.probabilities_of(name) for name in LEARN}, "probabilities.json")


if __name__ == "__main__":
    main()
