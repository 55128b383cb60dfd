"""Writes the logs of `inputs/`. It was run once; the files are committed, and stay as they are.

`python -m tests.golden.make_inputs` writes the same rows again. The bytes of Parquet and Arrow
files depend on the release of Polars, and expected results hold the SHA-256 of every file: so a
file that exists is not written again.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

INPUTS = Path(__file__).parent / "inputs"
Row = dict[str, Any]
LABELS = ("mug", "book", "lamp", "pen")
SHARES = (0.4, 0.3, 0.2, 0.1)
MEANS = (0.2, 0.5, 0.9, 0.4)
START = datetime(2026, 1, 1, tzinfo=UTC)


def some_rows(
    rows: int,
    seed: int,
    *,
    labels: Sequence[Any] = LABELS,
    shares: Sequence[float] = SHARES,
    means: Sequence[float] = MEANS,
    drift: float = 0.0,
) -> list[Row]:
    """Rows of a production that plays by `shares`, and moves toward uniform play by `drift`."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(rows):
        moved = drift * i / rows
        q = (1.0 - moved) * np.array(shares) + moved / len(shares)
        a = int(np.searchsorted(np.cumsum(q / q.sum()), rng.random()))
        reward = float(rng.random() < means[a]) if rng.random() < 0.7 else round(rng.random(), 3)
        found.append({"action": labels[a], "reward": reward, "propensity": round(float(q[a]), 6)})
    return found


def with_contexts(rows: int, seed: int) -> list[Row]:
    """A number, a category, another number that is missing at times; the best action depends."""
    rng = np.random.default_rng(seed)
    found = some_rows(rows, seed, labels=LABELS[:3], shares=(0.5, 0.3, 0.2), means=(0, 0, 0))
    for row in found:
        age, city = round(float(rng.normal(40, 12)), 1), str(rng.choice(["Rome", "Oslo", "Bari"]))
        best = "lamp" if age > 40 else "mug" if city == "Oslo" else "book"
        row["reward"] = float(rng.random() < (0.9 if row["action"] == best else 0.2))
        visits = None if rng.random() < 0.1 else int(rng.integers(0, 9))
        row.update(age=age, city=city, visits=visits)
    return found


def dirty_rows() -> list[Row]:
    """Good rows, and between them one or two for every reason to quarantine a row."""
    good = some_rows(54, 77)
    for i, row in enumerate(good):
        row.update(time=i, eligible="|".join(LABELS), target=0.5)
    wrong: list[Row] = [
        {"action": None},
        {"action": "  "},
        {"action": "sofa"},
        {"reward": None},
        {"reward": "much"},
        {"reward": "nan"},
        {"reward": "inf"},
        {"reward": "1.5"},
        {"reward": "-0.25"},
        {"propensity": None},
        {"propensity": "often"},
        {"propensity": "NaN"},
        {"propensity": "-inf"},
        {"propensity": "0"},
        {"propensity": "1.25"},
        {"eligible": "mug|book", "action": "pen"},
        {"eligible": '["mug"]', "action": "book"},
        {"time": None},
        {"time": "yesterday"},
        {"target": None},
        {"target": "maybe"},
        {"target": "nan"},
        {"target": "2"},
        {"action": "sofa", "reward": "much", "propensity": "0"},
        {"reward": " true "},
        {"reward": "FALSE"},
    ]
    found = []
    for i, row in enumerate(good):
        found.append(row)
        if i % 2 == 0 and i // 2 < len(wrong):
            found.append(row | wrong[i // 2])
    return found


def csv_text(rows: Sequence[Row], separator: str = ",") -> str:
    buffer = io.StringIO()
    names = list(rows[0])
    writer = csv.DictWriter(buffer, names, delimiter=separator, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: "" if row[name] is None else row[name] for name in names} for row in rows
    )
    return buffer.getvalue()


def ndjson_text(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def vw_lines(rows: Sequence[Row]) -> str:
    """One line an event; every third one names the actions that were available too."""
    lines = []
    for i, row in enumerate(rows):
        label = f"{row['action']}:{round(1.0 - row['reward'], 3)}:{row['propensity']}"
        others = [str(a) for a in (1, 2, 3) if a != row["action"]]
        label = " ".join([*others, label]) if i % 3 == 0 else label
        new = " new" if i % 2 else ""
        lines.append(f"{label} |user age:{20 + 7 * i % 40}{new} |item price:{i % 5}")
    lines[5] = "2:cheap:0.3 |user age:30"
    lines[9] = "no label | age:3"
    return "\n".join(lines) + "\n"


def vw_events(rows: Sequence[Row]) -> str:
    """Several lines an event, the first of them shared."""
    text = ""
    for i, row in enumerate(rows):
        text += f"shared |user age:{20 + 7 * i % 40}\n"
        for action in (1, 2, 3):
            played = action == row["action"]
            cost = f"{round(1.0 - row['reward'], 3)}:{row['propensity']}"
            text += f"{f'0:{cost} ' if played else ''}|item number:{action}\n"
        text += "\n"
    return text


def dsjson_text(rows: Sequence[Row]) -> str:
    events = []
    for i, row in enumerate(rows):
        events.append(
            {
                "_label_cost": -row["reward"],
                "_label_probability": row["propensity"],
                "_label_Action": row["action"],
                "_labelIndex": row["action"] - 1,
                "Timestamp": (START + timedelta(minutes=i)).isoformat().replace("+00:00", "Z"),
                "EventId": f"e{i}",
                "a": [row["action"], *(a for a in (1, 2, 3) if a != row["action"])],
                "c": {"User": {"age": 20 + 7 * i % 40, "city": ["Rome", "Oslo"][i % 2]}},
                "p": [row["propensity"]],
                "pdrop": 0.0,
            }
        )
    events[4]["_label_cost"] = "free"
    events[6]["_skipLearn"] = True
    events[8]["a"] = [1, 2, 3]
    events[8]["_label_Action"], events[8]["_labelIndex"] = 4, 3
    return ndjson_text(events)


def timed(
    rows: Sequence[Row], seed: int, *, shuffled: bool, iso: bool, first: int = 0
) -> list[Row]:
    """With a time, and out of order if wanted; two rows share each time."""
    found = []
    for i, row in enumerate(rows):
        minute = first + i // 2
        when = (START + timedelta(minutes=minute)).isoformat() if iso else minute
        found.append(row | {"when": when})
    if shuffled:
        order = np.random.default_rng(seed).permutation(len(found))
        found = [found[i] for i in order]
    return found


def eligible(rows: Sequence[Row], *, text: bool) -> list[Row]:
    """With the actions that could be played; some played ones are not among them."""
    found = []
    for i, row in enumerate(rows):
        among = [label for j, label in enumerate(LABELS) if (i + j) % 7 != 0]
        if i % 11 != 0 and row["action"] not in among:
            among.append(row["action"])
        found.append(row | {"could": "|".join(among) if text else among})
    return found


def feedback() -> dict[str, Any]:
    """Two halves of feedback for learners and certificates without files, with features."""
    rng = np.random.default_rng(5)
    found = {}
    for half in ("first", "second"):
        q = np.array([0.5, 0.3, 0.2])
        actions = [int(np.searchsorted(np.cumsum(q), x)) for x in rng.random(40)]
        found[half] = {
            "actions": actions,
            "rewards": [float(rng.random() < (0.2, 0.5, 0.9)[a]) for a in actions],
            "propensities": [float(q[a]) for a in actions],
            "shared": rng.uniform(-0.5, 0.5, size=(40, 3, 2)).round(4).tolist(),
            "contexts": rng.uniform(-0.5, 0.5, size=(40, 2)).round(4).tolist(),
        }
    return found


def contents() -> dict[str, str | bytes | pl.DataFrame]:
    """Every input by its name."""
    numbers: dict[str, Any] = {
        "labels": (1, 2, 3),
        "shares": (0.5, 0.3, 0.2),
        "means": (0.2, 0.5, 0.9),
    }
    scaled = [
        [
            row | {"reward": round(3.0 * row["reward"] - 1.0, 3)}
            for row in some_rows(36, seed, **numbers)
        ]
        for seed in (3, 4)
    ]
    clear: dict[str, Any] = {"labels": ("a", "b"), "shares": (0.5, 0.5), "means": (0.0, 1.0)}
    obd = {"action": "item_id", "reward": "click", "propensity": "propensity_score"}
    found: dict[str, str | bytes | pl.DataFrame] = {
        "actions.txt": "".join(f"{label}\n" for label in (*LABELS, "vase")),
        "actions.json": json.dumps([*LABELS, "vase"]),
        "numbers.txt": "1\n2\n3\n4\n",
        "ab.txt": "a\nb\n",
        "behavior.json": json.dumps(dict(zip(LABELS, SHARES, strict=True))),
        "behavior.csv": "action,probability\nmug,0.4\nbook,0.3\nlamp,0.2\npen,0.1\nvase,0\n",
        "never_pen.json": json.dumps({"mug": 0.5, "book": 0.3, "lamp": 0.2, "pen": 0.0}),
        "three.json": json.dumps({"mug": 0.5, "book": 0.3, "lamp": 0.2}),
        "policy.csv": "action,probability\nmug,0.1\nlamp,0.7\npen,0.2\n",
        "always_a.json": json.dumps({"a": 1.0}),
        "always_b.json": json.dumps({"b": 1.0}),
        "feedback.json": json.dumps(feedback(), indent=0),
        "dirty.csv": csv_text(dirty_rows()),
        "dirty.ndjson": ndjson_text(dirty_numbers()),
        "clear.csv": csv_text(some_rows(100, 30, **clear)),
        "clear-later.csv": csv_text(some_rows(60, 31, **clear)),
        "late.csv": csv_text(dirty_rows()[50:]),
    }
    for half in (1, 2):
        plain, drifting = some_rows(45, half), some_rows(40, 10 + half, drift=0.5)
        contextual, three = with_contexts(60, 20 + half), some_rows(36, 40 + half, **numbers)
        bare = [{name: row[name] for name in ("action", "reward")} for row in some_rows(50, half)]
        shuffled = timed(drifting, half, shuffled=True, iso=True, first=30 * half)
        ordered = timed(drifting, half, shuffled=False, iso=False, first=30 * half)
        renamed = [{obd[name]: value for name, value in row.items()} for row in three]
        own = [row | {"mine": [0.9, 0.1, 0.55][i % 3]} for i, row in enumerate(plain)]
        found |= {
            f"plain-{half}.csv": csv_text(own),
            f"drifting-{half}.ndjson": ndjson_text(drifting),
            f"scaled-{half}.arrow": pl.DataFrame(scaled[half - 1]),
            f"plain-{half}.parquet": pl.DataFrame(own),
            f"bare-{half}.csv": csv_text(bare),
            f"shuffled-{half}.csv.gz": gzip.compress(csv_text(shuffled).encode(), mtime=0),
            f"ordered-{half}.ndjson": ndjson_text(ordered),
            f"eligible-{half}.csv": csv_text(eligible(plain, text=True)),
            f"eligible-{half}.ndjson": ndjson_text(eligible(plain, text=False)),
            f"contexts-{half}.csv": csv_text(contextual),
            f"contexts-{half}.ndjson": ndjson_text(contextual),
            f"lines-{half}.vw": vw_lines(three),
            f"events-{half}.vw": vw_events(three),
            f"ranked-{half}.dsjson": dsjson_text(three),
            f"obd-{half}.tsv": csv_text(renamed, "\t"),
            f"days/day={half}/log.csv": csv_text(some_rows(20, 50 + half)),
        }
    return found


def dirty_numbers() -> list[Row]:
    """The same reasons where a format knows numbers: no text that is none."""
    rows = some_rows(36, 78)
    wrong: list[Row] = [
        {"action": None},
        {"action": "sofa"},
        {"reward": None},
        {"reward": 1.5},
        {"reward": -1},
        {"reward": True},
        {"propensity": None},
        {"propensity": 0},
        {"propensity": 1.01},
        {"propensity": 1e-120},
    ]
    return [
        row | (wrong[i // 3] if i % 3 == 0 and i // 3 < len(wrong) else {})
        for i, row in enumerate(rows)
    ]


def write(path: Path, content: str | bytes | pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pl.DataFrame):
        writers: dict[str, Callable[[Path], object]] = {
            ".arrow": content.write_ipc,
            ".parquet": content.write_parquet,
        }
        writers[path.suffix](path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def main() -> None:
    for name, content in contents().items():
        if not (INPUTS / name).exists():
            write(INPUTS / name, content)


if __name__ == "__main__":
    main()
