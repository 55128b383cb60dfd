"""What can go wrong with `understudy.logs.outputs`: old results, full disks, an impatient user."""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import html
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import understudy as us
from tests.support.command_line import COMMANDS, Place, place, use_progress_bar
from tests.support.logs.broken_files import TEXT
from tests.support.logs.log_files import LABELS, make_rows, write
from tests.support.logs.questions import QUESTION, with_metrics
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.logs import Policy, outputs

__all__ = ["place"]

pytestmark = pytest.mark.plain

ACTIONS: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "fewer than two"),
    "one": ("north\n", "fewer than two"),
    "one twice": ("a\na\n", "twice"),
    "half a list": ('["a", ', "not JSON"),
    "lists": ('[["a"], "b"]', "texts or whole numbers"),
    "truths": ("[true, false]", "texts or whole numbers"),
    "half a character": ('["\\ud800", "b"]', "texts or whole numbers"),
    "a deep list": ("[" * 100_000, "not JSON"),
    "a number of 5000 digits": (f"[{'9' * 5_000}, 1]", "not JSON"),
    "Latin-1": (b"caf\xe9\nb\n", "not UTF-8"),
}
PROBABILITIES: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "no columns 'action' and 'probability'"),
    "no rows": ("action,probability\n", "no columns 'action' and 'probability'"),
    "other columns": ("label,share\na,1\n", "no columns 'action' and 'probability'"),
    "a word": ("action,probability\nnorth,much\nsouth,1\n", "probability of 'north' is not a"),
    "a field too few": ("action,probability\nnorth\nsouth,1\n", "probability of 'north' is not a"),
    "a field too many": ("action,probability\nnorth,0.5,1\nsouth,0.5\n", "more fields"),
    "no label": ("probability,action\n0.5\n0.5,south\n", "has no action"),
    "a label of 10⁶ characters": (f"action,probability\n{'x' * 10**6},1\n", "not CSV"),
    "one twice": ("action,probability\nnorth,0.5\nnorth,0.5\n", "twice"),
    "a key twice": ('{"north": 0.5, "north": 0.5, "south": 0.5}', "twice"),
    "half an object": ('{"north": ', "not JSON"),
    "NaN": ('{"north": NaN, "south": 1}', "probability of 'north' is not a number"),
    "a list": ('{"north": [1], "south": 0}', "probability of 'north' is not a number"),
    "a truth": ('{"north": true, "south": false}', "probability of 'north' is not a number"),
    "below 0": ('{"north": -1, "south": 2}', "negative"),
    "not 1 in all": ('{"north": 0.1, "south": 0.1}', "sum to 0.2"),
    "half a character": ('{"\\ud800": 0.5, "south": 0.5}', "not Unicode"),
    "Latin-1": (b'{"caf\xe9": 1}', "not UTF-8"),
}


@pytest.mark.parametrize(("content", "words"), ACTIONS.values(), ids=ACTIONS)
def test_a_broken_list_of_actions(content: str | bytes, words: str, place: Place) -> None:
    log, actions = place.write("log.csv", TEXT), place.write("actions.txt", content)
    for command in COMMANDS:
        line = place.refused(command, log, "--actions", actions)
        assert "actions.txt" in line
        assert words in line


@pytest.mark.parametrize(("content", "words"), PROBABILITIES.values(), ids=PROBABILITIES)
def test_broken_probabilities(content: str | bytes, words: str, place: Place) -> None:
    log, file = place.write("log.csv", TEXT), place.write("plays.txt", content)
    asked = [("learn", "--behavior"), ("coverage", "--policy"), ("certify", "--policy")]
    for command, option in asked:
        before = place.files()
        own = ("--out", place.out) if command == "learn" else ()
        said = place.run(command, log, option, file, *own)
        assert (said.code, said.error.count("\n"), said.out) == (2, 1, "")
        assert "plays.txt" in said.error
        assert words in said.error
        assert place.files() == before


def test_a_behavior_of_one_action_is_no_choice(place: Place) -> None:
    log, file = place.write("log.csv", TEXT), place.write("plays.txt", '{"north": 1}')
    line = place.refused("learn", log, "--behavior", file)
    assert "behavior = 'north'" in line
    assert "--actions FILE" in line
    assert place.run("certify", log, "--policy", file).code == 0


def learned(place: Place, rows: pl.DataFrame | None = None, **asked: Any) -> Path:
    """The results of an earlier run."""
    us.logs.learn(make_rows(60) if rows is None else rows, out=place.out, **asked)
    return place.out / "policy.json"


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where anything stands in JSON; of a long list its ends."""
    if path:
        yield path
    inside: dict[Any, Any] = value if isinstance(value, dict) else {}
    if isinstance(value, list):
        inside = {i: value[i] for i in (0, len(value) - 1) if value}
    for key, item in inside.items():
        yield from parts(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """JSON in which something else stands in one place."""
    found = copy.deepcopy(value)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return found


CHANGES = 600  # of some 10 000 to 100 000, at a hundredth of a second each
HOSTILE: tuple[Any, ...] = (None, -1, 1e308, "x", [], {}, True, "\ud800", {"kind": "Path"}, [[]])


@pytest.mark.parametrize("kind", ["plain", "contexts", "question"])
def test_a_policy_that_was_changed_is_refused_or_harmless(kind: str, place: Place) -> None:
    """In every place every kind of value: if it is taken for a policy, it can be used as one."""
    context = kind == "contexts"
    rows = make_rows(60, context=context)
    more = make_rows(20, seed=1, context=context)
    asked: dict[str, Any] = {"learner": "exp3-ix"}
    if kind == "question":
        rows, more = (with_metrics(one) for one in (rows, more))
        asked = {"learner": "exp3-ix", "actions": LABELS, **QUESTION}
    if context:  # few random features, so that the file is small
        asked = {"context": ["x", "color"], "learner": "exp4:features=16"}
    whole = json.loads(learned(place, rows, **asked).read_text(encoding="utf-8"))
    path, taken = place.root / "changed.json", 0
    everywhere = list(itertools.product(parts(whole), HOSTILE))
    # All of them were tried. The step has no factor of 10, the number of values, so that all occur.
    step = 1 + 10 * math.ceil(len(everywhere) / 10 / CHANGES)
    for where, value in everywhere[::step]:
        path.write_text(json.dumps(replaced(whole, where, value)), encoding="utf-8")
        try:
            policy = Policy.load(path)
        except InvalidSnapshot:
            continue
        taken += 1
        if taken % 5 == 0:
            with contextlib.suppress(InvalidArgument):
                us.logs.learn(more, resume=policy).policy.to_json()
    assert taken >= 5


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("settings", "theorem"), "\ud800"),
        (("provenance", "files", 0, "name"), "\ud800"),
        (("actions", 0), "\ud800"),
        (("certificate", "evidence", "products", "values", 0), 1e308),
        (("tally", "lowest", 0), 0.0),
        (("tally", "counts", 0), 1e308),
        (("curve", 0, 3), None),
        (("settings", "reward_range", 1), 1e308),
        (("settings", "horizon"), "x"),
    ],
)
def test_what_no_run_writes_is_refused(where: tuple[Any, ...], value: Any, place: Place) -> None:
    path = learned(place, learner="exp3-ix")
    whole = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(replaced(whole, where, value)), encoding="utf-8")
    assert "policy.json" in place.refused("learn", place.write("log.csv", TEXT), "--resume")


@pytest.mark.parametrize("content", ["", "{", "[]", "\ufffe", '{"format": "understudy"}', "0" * 99])
def test_what_is_no_policy_is_refused(content: str, place: Place) -> None:
    log = place.write("log.csv", TEXT)
    place.out.mkdir(parents=True)
    (place.out / "policy.json").write_text(content, encoding="utf-8")
    assert "policy.json" in place.refused("learn", log, "--resume")
    before = place.files()
    said = place.run("certify", log, "--policy", place.out / "policy.json")
    assert (said.code, said.error.count("\n")) == (2, 1)
    assert place.files() == before


def test_a_broken_quarantine_of_before_is_refused(place: Place) -> None:
    log = place.write("log.csv", TEXT)
    learned(place)
    (place.out / "quarantine.parquet").write_bytes(b"PAR1 and no more")
    assert "quarantine.parquet" in place.refused("learn", log, "--resume")
    (place.out / "quarantine.parquet").unlink()
    assert place.run_on("learn", log, "--resume").code == 0


def test_reasons_are_kept_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """Every time: a report that is made again says the same."""
    rows = pl.DataFrame(
        {
            "file": [f"{i % 40}.csv" for i in range(400)],
            "row": range(400),
            "reason": [f"reason {i % 100}" for i in range(400)],
            **dict.fromkeys(("action", "reward", "propensity"), "x"),
        }
    )
    with outputs.Quarantine(tmp_path / "quarantine.parquet") as quarantine:
        quarantine.add(rows)
    came = dict.fromkeys(rows.select("file", "reason").iter_rows())
    assert list(quarantine.counts) == list(came)
    assert list(quarantine.by_reason()) == [f"reason {i}" for i in range(100)]


UNREAD = {"b.log": "x", "c.txt": "x", "e.json": "{}", "sub/x.csv.bz2": "x"}
HIDDEN = {".notes": "x", "_SUCCESS": "", "_logs/d.txt": "x"}
WORDS = (
    "4 files of the folder '{}' were not read, because their names do not say the format: "
    "'b.log', 'c.txt', 'e.json' and 1 more; name them, with --format."
)


@pytest.mark.parametrize("engine", [(), ("--engine", "polars")], ids=["ordered", "engine"])
@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_a_folder_that_are_not_read_are_told(
    command: str, engine: tuple[str, ...], place: Place
) -> None:
    folder = write(place.root / "logs" / "a.csv", make_rows(300)).parent
    for name, content in (UNREAD | HIDDEN).items():
        place.write(name, content)
    learning = ("--horizon", "300") if engine and command == "learn" else ()
    results = {"certify": ("--out", place.out), "learn": ("--overwrite",)}.get(command, ())
    declared = place.root / "actions.txt"
    declared.write_text("\n".join(LABELS), encoding="utf-8")
    arguments: tuple[Any, ...] = (*engine, *learning, *results, "--actions", declared)
    words = WORDS.format(folder)
    said = place.run_on(command, folder, "--json", *arguments)
    assert words in json.loads(said.out)["warnings"]
    said = place.run_on(command, folder, *arguments)
    assert words.replace(" ", "") in "".join(said.out.split())
    if results:
        page = html.unescape((place.out / "report.html").read_text(encoding="utf-8"))
        assert words in page


def test_one_file_that_is_not_read_and_results_of_before(place: Place) -> None:
    """The files that this library writes beside its report are no logs, and need no warning."""
    folder = write(place.root / "logs" / "a.csv", make_rows(300)).parent
    assert place.run("learn", folder / "a.csv", "--out", folder / "out").code == 0
    assert json.loads(place.run("coverage", folder, "--json").out)["warnings"] == []
    place.write("caf\ne\u0301.log", "x")
    (warning,) = json.loads(place.run("coverage", folder, "--json").out)["warnings"]
    assert warning.startswith("1 file of the folder")
    assert "'caf\\ne" in warning


def test_advice_fits_what_was_asked_for(place: Place) -> None:
    """The column of what could be played is named already; of several reasons, one is meant."""
    rows = make_rows(60).with_columns(could=pl.lit("up|down"))
    log = write(place.root / "logs" / "log.csv", rows)
    line = place.refused("coverage", log, "--eligible", "could")
    assert "see whether the column named with --eligible lists what could be played" in line
    number = pl.int_range(pl.len())
    mixed = rows.with_columns(reward=pl.when(number < 20).then(None).otherwise(7.0))
    line = place.refused("coverage", write(place.root / "logs" / "mixed.csv", mixed))
    assert "where the reward is out of range, pass the smallest" in line


def test_results_are_not_written_into_a_file_or_over_others(place: Place) -> None:
    log = place.write("log.csv", TEXT)
    learned(place)
    assert "it holds a policy already" in place.refused("learn", log)
    assert "the log is in this folder" in place.run("learn", log, "--out", log.parent).error
    before = place.files()
    said = place.run("learn", log, "--out", log)
    assert (said.code, said.error.count("\n")) == (2, 1)
    assert "log.csv" in said.error
    assert place.files() == before


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FULL: dict[str, tuple[Any, str]] = {
    "while rows are set aside": (pq.ParquetWriter, "write_table"),
    "for the policy": (Policy, "save"),
    "for the page": (Path, "write_text"),
    "on the way": (os, "fsync"),
    "at the very end": (fcntl, "flock"),
}


@pytest.mark.parametrize("older", [False, True], ids=["new", "older"])
@pytest.mark.parametrize(("where", "what"), FULL.values(), ids=FULL)
def test_a_full_disk_leaves_what_was_there(
    where: Any, what: str, older: bool, place: Place
) -> None:
    log = place.write("log.csv", TEXT + "north,7,0.5\n")
    if older:
        learned(place)
    place.monkeypatch.setattr(where, what, no_room)
    line = place.refused("learn", log, *(["--overwrite"] if older else []))
    assert "No space left on device" in line
    assert "choose another folder" in line


def test_the_policy_comes_last(place: Place) -> None:
    """So that where it is, all is: a crash in between leaves the policy of before."""
    log = place.write("log.csv", TEXT)
    before = learned(place).read_bytes()
    moved: list[str] = []
    replace = Path.replace

    def crash(self: Path, target: Path) -> Path:
        if Path(target).parent == place.out:
            moved.append(Path(target).name)
            if len(moved) == 3:
                raise KeyboardInterrupt
        return replace(self, target)

    place.monkeypatch.setattr(Path, "replace", crash)
    said = place.run_on("learn", log, "--overwrite")
    assert said.code == 130
    assert moved[-1] == "policy.json"
    assert (place.out / "policy.json").read_bytes() == before
    assert {path.name for path in place.out.iterdir()} == {
        "policy.json",
        "report.html",
        "quarantine.parquet",
    }
    assert not list((place.root / "temporary").iterdir())


def watching(act: Callable[[int], None]) -> Callable[[], Any]:
    """A bar that does something at each of its steps."""

    @contextlib.contextmanager
    def watched() -> Iterator[Callable[[str, int, int | None], None]]:
        steps = iter(range(10**6))
        yield lambda _phase, _rows, _expected: act(next(steps))

    return watched


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_impatient_user_leaves_nothing_behind(command: str, step: int, place: Place) -> None:
    rows = make_rows(300).with_columns(at=-pl.int_range(pl.len()))  # has to be sorted
    log = place.root / "logs" / "log.parquet"
    rows.write_parquet(log, row_group_size=100)
    before = place.files()

    def stop(number: int) -> None:
        if number == step:
            raise KeyboardInterrupt

    use_progress_bar(watching(stop), place.monkeypatch)
    said = place.run_on(command, log, "--time", "at")
    if said.code != 0:
        assert said.code == 130
        assert said.error.strip() == "understudy: stopped"
        assert place.files() == before
    assert not list((place.root / "temporary").iterdir())
    assert said.code == 130 or step == 2


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.ndjson", "log.arrow"])
def test_a_file_that_disappears_is_named(name: str, place: Place) -> None:
    log = write(place.root / "logs" / name, make_rows(300))

    def remove(number: int) -> None:
        if number == 0:
            log.unlink()

    use_progress_bar(watching(remove), place.monkeypatch)
    said = place.run_on("coverage", log)
    assert (said.code, said.error.count("\n")) == (2, 1)
    assert name in said.error
    assert not list((place.root / "temporary").iterdir())


ONE = pl.int_range(pl.len()) == 7
EDGES: dict[str, dict[str, pl.Expr]] = {
    "no reward at all": {"reward": pl.lit(0.0)},
    "all rewards": {"reward": pl.lit(1.0)},
    "rewards near 0": {"reward": pl.col("reward") * 1e-300},
    "the smallest rewards": {"reward": pl.col("reward") * 5e-324},
    "the smallest propensities": {"propensity": pl.lit(1e-100)},
    "one small propensity": {
        "propensity": pl.when(ONE).then(1e-90).otherwise(pl.col("propensity"))
    },
    "small rewards and propensities": {
        "reward": pl.col("reward") * 1e-160,
        "propensity": pl.lit(1e-100),
    },
    "no choice": {"propensity": pl.lit(1.0)},
}


@pytest.mark.parametrize("change", EDGES.values(), ids=EDGES)
def test_numbers_at_the_edge_of_what_is_one(change: dict[str, pl.Expr], place: Place) -> None:
    log = write(place.root / "logs" / "log.parquet", make_rows(100).with_columns(**change))
    for command in COMMANDS:
        said = place.run_on(command, log)
        assert (said.code, said.error) == (0, "")
        assert "inf rows" not in said.out
    assert place.run("coverage", log, "--json", "--engine", "polars").code == 0


@pytest.mark.parametrize("high", ["1e308", "1e-320", "nan", "inf", "0"])
def test_a_range_of_rewards_that_is_none(high: str, place: Place) -> None:
    log = place.write("log.csv", TEXT)
    for command in COMMANDS:
        assert "reward_range" in place.refused(command, log, "--reward-range", "0", high)
