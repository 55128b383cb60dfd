"""Snapshots: a learner and its state as JSON, bit for bit; and `Understudy`, which holds both.

A snapshot has a version, and loading one runs no code: only dataclasses marked `@saved` are built,
and all their fields are validated like arguments.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import math
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, SupportsIndex, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from understudy.behaviors import choose
from understudy.constraints import Array, enforce, having
from understudy.errors import InvalidArgument, InvalidSnapshot, NotSaveable, shorten
from understudy.protocols import LEARNER, Learner
from understudy.types import ABSENT, ADDED, SAVED, Feedback, Log, Trace, read_only, saved_tag

FORMAT = "understudy"
VERSION = 2
DTYPES = ("float64", "int64")
PIECE = 1_024  # numbers encoded at a time, which takes about a millisecond
PAUSE_EVERY = 1 << 14  # characters, about as many as a piece has
NESTED = {dict, list, tuple}
RNG = having("pass np.random.default_rng(seed)", "random")

State = TypeVar("State")
Record = TypeVar("Record")


def to_json(learner: Learner[State], state: State) -> str:
    """Write a learner and its state as JSON text.

    >>> import understudy as us
    >>> learner = us.exp3([0.5, 0.5], eta=0.1)
    >>> text = to_json(learner, learner.init())
    >>> json.loads(text)["version"]
    2
    """
    return to_text(learner=learner, state=state)


def from_json(text: str) -> tuple[Learner[Any], Any]:
    """Read a learner and its state from the text of `to_json`, or raise `InvalidSnapshot`.

    >>> import understudy as us
    >>> learner = us.exp3([0.5, 0.5], eta=0.1)
    >>> again, state = from_json(to_json(learner, learner.init()))
    >>> again.policy(state).tolist()
    [0.5, 0.5]
    """
    learner, state = from_text(text, "learner", "state")
    if not hasattr(learner, "validate"):
        raise _damaged("learner", learner, "it is not a learner")
    with _refusals_of_a_snapshot():
        learner.validate(state)
    return learner, state


class Understudy(Generic[State]):
    """A learner with its current state: it observes events, returns its policy, and saves itself.

    >>> import understudy as us
    >>> u = us.Understudy(us.exp3_ix([0.5, 0.5], horizon=100))
    >>> u.observe(action=1, reward=1.0)
    >>> u.policy().round(4).tolist(), u.act(np.random.default_rng(0)), u.rounds
    ([0.4616, 0.5384], 1, 1)
    """

    def __init__(self, learner: Learner[State], state: State | None = None) -> None:
        self.learner: Learner[State] = LEARNER("learner", learner)
        self.state = learner.init() if state is None else state
        learner.validate(self.state)

    def __repr__(self) -> str:
        return f"Understudy({type(self.learner).__name__}, {self.rounds} rounds watched)"

    def observe(
        self,
        action: SupportsIndex,
        reward: float,
        *,
        propensity: float | None = None,
        features: ArrayLike | None = None,
        experts: ArrayLike | None = None,
    ) -> None:
        """Learn from one round of the behavior policy; an invalid event raises, the state stays."""
        feedback = Feedback(action, reward, propensity, features, experts)
        self.state = self.learner.update(self.state, feedback)

    def replay(self, log: Log) -> Trace:
        """Learn from a whole log; if an event is invalid, raise and learn nothing from the log."""
        self.state, trace = self.learner.replay(self.state, log)
        return trace

    def policy(self, features: ArrayLike | None = None, **outside: Any) -> Array:
        """Return the probability of each action in the next round.

        A learner that follows production in part takes its probabilities as `production=`.
        """
        return self.learner.policy(self.state, features, **outside)

    def act(self, rng: Generator, features: ArrayLike | None = None, **outside: Any) -> int:
        """Draw an action from the policy with the caller's random generator."""
        uniform = RNG("rng", rng).random(1)
        return int(choose(self.policy(features, **outside), uniform)[0])

    @property
    def rounds(self) -> int:
        """The number of observed rounds."""
        return self.learner.rounds(self.state)

    @property
    def past_horizon(self) -> int:
        """The number of observed rounds after the horizon of the learning rate."""
        return self.learner.past_horizon(self.state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a snapshot to a file, atomically."""
        write_atomically(Path(path), to_json(self.learner, self.state).encode())


def load(path: str | os.PathLike[str]) -> Understudy[Any]:
    """Read the understudy that `Understudy.save` wrote to `path`.

    >>> import tempfile, understudy as us
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     us.Understudy(us.exp3([0.5, 0.5], eta=0.1)).save(f"{folder}/saved.json")
    ...     us.load(f"{folder}/saved.json").rounds
    0
    """
    return Understudy(*from_json(read_text(path)))


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file, or `InvalidSnapshot` if it can hold no snapshot."""
    file = Path(path)
    if file.is_dir():
        raise InvalidSnapshot("path", str(path), "it is a folder", "name the file in it")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _damaged("path", str(path), "the file is not text") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Put a file in place in one step, so that no reader and no crash ever sees half of it."""
    if not path.name:  # "" or "."
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.parent / f".{uuid.uuid4().hex[:12]}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # it may never have been made
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:  # the name the caller knows
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def as_data(value: Any, where: str = "value") -> Any:
    """Convert a number, an array, a tuple or a `@saved` dataclass to JSON data, exactly.

    >>> as_data((np.array([0.5]), 1))
    [{'array': 'float64', 'shape': [1], 'values': [0.5]}, 1]
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple):
        return [as_data(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.ndarray) and value.dtype.name in DTYPES:
        return {
            "array": value.dtype.name,
            "shape": list(value.shape),
            "values": value.ravel().tolist(),
        }
    if (tag := saved_tag(type(value))) is not None:
        fields = {
            field.name: as_data(getattr(value, field.name), f"{where}.{field.name}")
            for field in dataclasses.fields(value)
            if field.init and not _is_added_default(field, getattr(value, field.name))
        }
        return {"kind": tag, **fields}
    remedy = getattr(value, "NOT_SAVED", None) or (
        "pass numbers or an array in its place"
        if callable(value)
        else "mark dataclasses of your own with @understudy.saved"
    )
    raise NotSaveable(f"{where} is a {type(value).__name__}, which JSON cannot hold; {remedy}")


def _is_added_default(field: dataclasses.Field[Any], value: Any) -> bool:
    """Whether older files lack a field, and have its default by that."""
    if ADDED not in field.metadata:
        return False
    absent = field.metadata[ABSENT]
    return value is absent or (not isinstance(value, np.ndarray) and value == absent)


REMEDY = "load a file that Understudy.save wrote, unchanged"


def to_text(**parts: Any) -> str:
    """The text of a snapshot: its format and version, and each part as `as_data` encodes it."""
    data = {name: as_data(part, name) for name, part in parts.items()}
    return indented({"format": FORMAT, "version": VERSION, **data})


def indented(content: Any, pause: Callable[[], object] = lambda: None) -> str:
    """The text of `json.dumps(content, indent=1)`, in half the time; `pause` is called in between.

    The C encoder of json does not indent, and keeps the interpreter's lock until it is done. Here
    it encodes a piece at a time, and `pause` may let other threads run.

    >>> indented({"a": [0.5, 1.0], "b": {}}).splitlines()
    ['{', ' "a": [', '  0.5,', '  1.0', ' ],', ' "b": {}', '}']
    """
    parts, length = [], 0
    for part in _indented_parts(content, "\n"):
        parts.append(part)
        length += len(part)
        if length >= PAUSE_EVERY:
            pause()
            length = 0
    return "".join(parts)


def _indented_parts(value: Any, newline: str) -> Iterator[str]:
    """The parts of a text; `newline` has the spaces before the end of a list or object."""
    inner, encode = newline + " ", _encoder(", ")
    if isinstance(value, dict) and value:
        separator = "{"
        for key, item in value.items():
            yield f"{separator}{inner}{encode(key)}: "
            yield from _indented_parts(item, inner)
            separator = ","
        yield newline + "}"
    elif isinstance(value, list | tuple) and value:
        separator = "["
        if NESTED.isdisjoint(map(type, value)):
            encode = _encoder("," + inner)
            for start in range(0, len(value), PIECE):
                yield f"{separator}{inner}{encode(value[start : start + PIECE])[1:-1]}"
                separator = ","
        else:
            for item in value:
                yield separator + inner
                yield from _indented_parts(item, inner)
                separator = ","
        yield newline + "]"
    else:
        yield encode(value)


@functools.cache
def _encoder(separator: str) -> Callable[[Any], str]:
    return json.JSONEncoder(
        allow_nan=False, ensure_ascii=False, separators=(separator, ": ")
    ).encode


def from_text(text: str, *names: str) -> list[Any]:
    """The named parts of a text that `to_text` wrote, or `InvalidSnapshot`."""
    content = parse(text)
    with _refusals_of_a_snapshot():
        try:
            return [from_data(content.get(name), name) for name in names]
        except RecursionError:
            raise _damaged("snapshot", text[:40], "it is nested too deeply") from None


@contextlib.contextmanager
def _refusals_of_a_snapshot(within: str = "", remedy: str = REMEDY) -> Iterator[None]:
    """Turn the refusal of a value into that of the snapshot which holds it."""
    try:
        yield
    except InvalidSnapshot:
        raise
    except InvalidArgument as error:
        argument = within + error.argument
        raise InvalidSnapshot(argument, error.value, error.reason, remedy) from error


def _damaged(argument: str, value: object, reason: str) -> InvalidSnapshot:
    return InvalidSnapshot(argument, value, reason, REMEDY)


def parse(text: str) -> dict[str, Any]:
    """The JSON object of a snapshot, with format and version checked, its parts not yet decoded."""

    def refuse(constant: str) -> float:
        raise _damaged("snapshot", constant, "it holds a number that is not finite")

    try:
        snapshot = json.loads(text, parse_constant=refuse)
    except InvalidSnapshot:
        raise
    except (ValueError, RecursionError) as error:  # not JSON, or an int of too many digits
        raise _damaged("snapshot", text[:40], f"it is not JSON ({error})") from None
    if not isinstance(snapshot, dict) or snapshot.get("format") != FORMAT:
        raise _damaged("snapshot", snapshot, f"it does not say that its format is {FORMAT!r}")
    if snapshot.get("version") != VERSION or isinstance(snapshot["version"], bool):
        raise InvalidSnapshot(
            "version",
            snapshot.get("version"),
            f"this release reads version {VERSION}",
            "load it with the release of Understudy that wrote it",
        )
    return snapshot


def from_data(value: Any, where: str) -> Any:
    """Decode and check a value that `as_data` encoded."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _damaged(where, value, "it is not finite")
        return value
    if isinstance(value, list):
        return tuple(from_data(item, f"{where}[{i}]") for i, item in enumerate(value))
    if isinstance(value, dict) and "array" in value:
        return _decode_array(value, where)
    if isinstance(value, dict) and str(value.get("kind")) in SAVED:
        return _decode_record(value, where)
    if isinstance(value, dict) and isinstance(value.get("kind"), str):
        raise InvalidSnapshot(
            where,
            value["kind"],
            "no dataclass of this name was marked with @understudy.saved",
            "import the module that defines it before loading",
        )
    raise _damaged(where, value, "it is nothing that a snapshot holds")


def _decode_array(value: dict[str, Any], where: str) -> Any:
    if value["array"] not in DTYPES or not isinstance(value.get("values"), list):
        raise _damaged(where, value["array"], f"an array is of one of {DTYPES}")
    shape = value.get("shape")
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise _damaged(where, shape, "a shape is a list of lengths")
    kind = (int, float) if value["array"] == "float64" else int
    if any(isinstance(x, bool) or not isinstance(x, kind) for x in value["values"]):
        raise _damaged(where, value["values"][:3], f"its entries must be {value['array']}")
    try:
        array = np.array(value["values"], dtype=value["array"]).reshape(shape)
    except (ValueError, OverflowError):
        raise _damaged(where, shape, "values and shape do not agree") from None
    if not np.isfinite(array).all():
        raise _damaged(where, value["values"][:3], "an entry is not finite")
    return read_only(array)


def _decode_record(value: dict[str, Any], where: str) -> Any:
    cls = SAVED[value["kind"]]
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    found = set(value) - {"kind"}
    wanted = {name for name, field in fields.items() if ADDED not in field.metadata} | found
    if wanted != found or not found <= set(fields):
        odd = shorten(sorted((wanted ^ found) | (found - set(fields))))
        raise _damaged(where, value["kind"], f"fields are missing or unknown: {odd}")
    decoded = {name: from_data(value[name], f"{where}.{name}") for name in found}
    older = {name: fields[name].metadata[ABSENT] for name in set(fields) - found}
    record = cls(**decoded, **older)
    if hasattr(record, "CONSTRAINTS"):
        enforce(record)
    for name, item in decoded.items():
        if isinstance(item, tuple) and getattr(record, name) is not item:
            raise _damaged(f"{where}.{name}", value[name], "a list is saved for a tuple alone")
    return record


def fields_as_data(value: Any) -> Any:
    """Convert a dataclass to a JSON object of its fields, in their order, without a `kind` tag.

    Dataclasses within it become objects, tuples and arrays become lists, NaN becomes null. A class
    that is one of several alternatives has a `KIND`, which comes first.

    >>> fields_as_data(Feedback(1, 0.5, features=np.array([2.0])))
    {'action': 1, 'reward': 0.5, 'propensity': None, 'features': [2.0], ...}
    """
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, np.ndarray):
        found = value.tolist()
        return fields_as_data(found) if np.isnan(value).any() else found
    if isinstance(value, tuple | list):
        return [fields_as_data(item) for item in value]
    if dataclasses.is_dataclass(value):
        kind = {"kind": value.KIND} if hasattr(value, "KIND") else {}
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return kind | {name: fields_as_data(getattr(value, name)) for name in names}
    return value


def fields_from_data(
    cls: type[Record] | tuple[type[Record], ...],
    data: object,
    where: str,
    remedy: str = REMEDY,
    **decoders: Callable[[Any], Any],
) -> Record:
    """Convert an object of `fields_as_data` back to its dataclass, or raise `InvalidSnapshot`.

    The object must have exactly the fields of `cls`, or its `KIND` and those of one of several
    classes. A decoder turns the JSON of its field into a value; the class checks all of them.

    >>> data = fields_as_data(Feedback(1, 0.5))
    >>> fields_from_data(Feedback, data, "event").action
    1
    >>> fields_from_data(Feedback, data | {"reward": "high"}, "event")
    Traceback (most recent call last):
    understudy.errors.InvalidSnapshot: event.reward = 'high': it must be a number; load ...
    """
    found = data if isinstance(data, dict) else {}
    known: Any
    for known in cls if isinstance(cls, tuple) else (cls,):
        kind = {"kind": known.KIND} if hasattr(known, "KIND") else {}
        names = {field.name for field in dataclasses.fields(known) if field.init}
        if set(found) == {*kind, *names} and kind.items() <= found.items():
            break
    else:
        raise InvalidSnapshot(where, data, "its fields are not the saved ones", remedy)
    with _refusals_of_a_snapshot(f"{where}.", remedy):
        values = {name: decoders.get(name, lambda same: same)(found[name]) for name in names}
        record: Record = known(**values)
    return record
