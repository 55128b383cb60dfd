"""policy.json: what was learned, complete, so that it can be played, read, and learned on from."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.behaviors import Logged
from understudy.certificates import Certificate
from understudy.certificates.curves import POINTS
from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidArgument, InvalidSnapshot
from understudy.logs.actions import Actions, Label
from understudy.logs.columns import ESTIMATED, GIVEN, LOGGED, Columns, Kind
from understudy.logs.contextual import Contextual
from understudy.logs.scale import Scale
from understudy.logs.stretches import Stretches
from understudy.logs.study import Curve, Study
from understudy.logs.tally import Tally
from understudy.snapshots import FORMAT, VERSION, as_data, from_data, parse, write_atomically

__all__ = ["FileRead", "Policy", "Settings", "playable"]

KIND = "policy"
KINDS = {LOGGED: Logged, ESTIMATED: type(None), GIVEN: np.ndarray}
REMEDY = "pass a policy.json that `understudy learn` wrote, unchanged"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the first run fixed, and later ones keep: how rows are read, and who learns."""

    columns: Columns
    reward_range: tuple[float, float]
    behavior: Kind
    learner: str
    horizon: int | None
    theorem: str
    unmet: tuple[str, ...]

    @property
    def scale(self) -> Scale:
        """The units of rewards."""
        return Scale(*self.reward_range)


@dataclass(frozen=True)
class FileRead:
    """A file that was learned from; its SHA-256 is what tells it from others."""

    name: str
    sha256: str
    rows: int
    quarantined: int


def playable(policy: Array) -> Array:
    """Probabilities without those that are too small to be drawn, or to be divided by.

    >>> playable(np.array([1.0, 1e-200])).tolist()
    [1.0, 0.0]
    """
    return np.where(policy < SMALLEST_PROBABILITY, 0.0, policy)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Policy:
    """What was learned from a log: probabilities of actions, and all that they came from.

    `average` is the policy of the next row; of a policy with contexts, its mean over the last rows.
    `refused` counts the rows that were quarantined, by reason; `warmup` those that only served to
    prepare the features.
    """

    actions: Actions
    study: Study
    settings: Settings
    average: Array
    files: tuple[FileRead, ...]
    refused: Mapping[str, int]
    warmup: int = 0
    contextual: Contextual | None = None

    def probabilities(self, context: Mapping[str, Any] | None = None) -> dict[Label, float]:
        """The probability of every action in the next round, in a context if it has them."""
        if self.contextual is None:
            if context is not None:
                raise InvalidArgument(
                    "context", context, "this policy ignores contexts", "leave it out"
                )
            found = self.study.learner.policy(self.study.state)
        else:
            x = self.contextual.features_of_one(context or {})
            found = self.study.learner.policy(self.study.state, x)
        return dict(zip(self.actions.labels, found.tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Policy({len(self.actions)} actions, {self.settings.learner}, {self.rows:,} rows)"

    @property
    def rows(self) -> int:
        """Rows that were learned from."""
        return self.study.rounds

    def knows(self, fingerprints: Iterable[str]) -> bool:
        """Whether it was learned from one of these files."""
        return not {file.sha256 for file in self.files}.isdisjoint(fingerprints)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write policy.json, whole or not at all."""
        write_atomically(Path(path), self.to_json().encode())

    def to_json(self) -> str:
        """The whole of it as text, bit for bit: equal policies give equal texts."""
        study = self.study
        content = {
            "format": FORMAT,
            "version": VERSION,
            "kind": KIND,
            "rows": self.rows,
            "policy": [
                {"action": label, "probability": probability, "rows": count}
                for label, probability, count in zip(
                    self.actions.labels,
                    self.average.tolist(),
                    study.tally.counts.tolist(),
                    strict=True,
                )
            ],
            "settings": dataclasses.asdict(self.settings),
            "provenance": {
                "files": [dataclasses.asdict(file) for file in self.files],
                "quarantined": dict(self.refused),
                "warmup": self.warmup,
            },
            "actions": list(self.actions.texts),
            "encoder": None if self.contextual is None else self.contextual.as_data(),
            "learner": as_data(study.learner, "learner"),
            "state": as_data(study.state, "state"),
            "behavior": as_data(study.behavior, "behavior"),
            "certificate": as_data(study.certificate, "certificate"),
            "curve": [list(point) for point in study.curve.points],
            "tally": study.tally.as_data(),
            "stretches": study.stretches.as_data(),
        }
        return json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Policy:
        """The policy that was written at `path`, checked; `InvalidSnapshot` if it was damaged.

        >>> Policy.load("nowhere.json")
        Traceback (most recent call last):
        understudy.errors.InvalidSnapshot: policy = 'nowhere.json': it cannot be read ...
        """
        try:
            return from_text(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            reason = f"it cannot be read ({error.strerror})"
        except UnicodeDecodeError:
            reason = "it is not text"
        except InvalidArgument as error:
            reason = f"{error.argument}: {error.reason}"
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = f"a part is missing or damaged ({type(error).__name__}: {str(error)[:80]})"
        except RecursionError:
            reason = "it is nested too deeply"
        raise InvalidSnapshot("policy", str(path), reason, REMEDY)


def from_text(text: str) -> Policy:
    """What `to_json` wrote; whatever a damaged file may raise is for `Policy.load` to name."""
    content = parse(text)
    if content.get("kind") != KIND:
        raise InvalidSnapshot("kind", content.get("kind"), "it is not a policy", REMEDY)
    actions = Actions(tuple(str(label) for label in content["actions"]))
    study = _study(content)
    if not len(actions) == study.learner.form.n_actions == len(content["policy"]):
        raise InvalidSnapshot("actions", len(actions), "the learner has another number", REMEDY)
    provenance = content["provenance"]
    encoder = content["encoder"]
    return Policy(
        actions=actions,
        study=study,
        settings=_settings(content["settings"]),
        average=np.array([float(row["probability"]) for row in content["policy"]]),
        files=tuple(FileRead(**file) for file in provenance["files"]),
        refused={str(reason): int(count) for reason, count in provenance["quarantined"].items()},
        warmup=int(provenance["warmup"]),
        contextual=None if encoder is None else Contextual.from_data(encoder, study.learner),
    )


def _study(content: dict[str, Any]) -> Study:
    parts = ("learner", "state", "behavior", "certificate")
    learner, state, behavior, certificate = (from_data(content[part], part) for part in parts)
    learner.validate(state)
    tally, n = Tally.from_data(content["tally"], learner.form.n_actions), learner.rounds(state)
    if not isinstance(certificate, Certificate | None):
        raise InvalidSnapshot("certificate", certificate, "it is not a certificate", REMEDY)
    curve = Curve(tuple(_point(point) for point in content["curve"]))
    watched = 0 if certificate is None else certificate.rounds  # those set aside count there too
    stretches = Stretches.from_data(content["stretches"], learner.form.n_actions)
    agree = (
        content["rows"] == tally.rows == n
        and (certificate is None or watched >= n)
        and stretches.rows in {0, n}
        and len(curve.points) == np.searchsorted(POINTS, watched, side="right")
        and KINDS[content["settings"]["behavior"]] is type(behavior)
    )
    if not agree:
        raise InvalidSnapshot("rows", n, "learner, certificate and coverage disagree", REMEDY)
    return Study(learner, state, behavior, certificate, tally, stretches, curve)


def _point(point: list[Any]) -> tuple[float, float, float, float | None]:
    lower, upper, production, gain = point
    return float(lower), float(upper), float(production), None if gain is None else float(gain)


def _settings(found: dict[str, Any]) -> Settings:
    columns = dict(found["columns"])
    low, high = found["reward_range"]
    return Settings(
        **{
            **found,
            "columns": Columns(**{**columns, "context": tuple(columns["context"])}),
            "reward_range": (float(low), float(high)),
            "unmet": tuple(found["unmet"]),
        }
    )
