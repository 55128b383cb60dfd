"""The options of `learn`, `coverage` and `certify`: each declared once, for Python and commands."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, Unpack, get_type_hints

from understudy.behaviors import LEAST_PROPENSITY
from understudy.certificates.evidence import CONFIDENCE
from understudy.constraints import HORIZON, TRUTH, integer, number
from understudy.errors import InvalidArgument, Verbatim, shorten
from understudy.logs.action_files import check_probabilities, read_actions, read_probabilities
from understudy.logs.aggregation.engines import ENGINES
from understudy.logs.evaluation.questions import PLAIN_QUESTION, QuarantinedRows, Question
from understudy.logs.readers.files import FORMATS
from understudy.logs.schema import (
    ACTION,
    ELIGIBLE,
    ESTIMATED,
    GIVEN,
    ID,
    LOGGED,
    NO_VECTORS,
    PRESETS,
    PROPENSITY,
    REWARD,
    TARGET,
    TIME,
    UNIT,
    UNKNOWN,
    VECTOR,
    Actions,
    Columns,
    Label,
    PropensitySource,
    RewardScale,
    first_few,
    label_key,
)
from understudy.logs.settings import (
    ALLOW,
    LEARNERS,
    REPEATED_ROWS,
    RepeatedRowsOption,
    Settings,
    Wanted,
    check_wanted,
)
from understudy.protocols import Learner

COLUMN_ROLES = (ACTION, REWARD, PROPENSITY, VECTOR, TIME, ELIGIBLE, TARGET, ID, UNIT)
NAMED_SOURCES: dict[str, PropensitySource] = {LOGGED: LOGGED, ESTIMATED: ESTIMATED}
DEFAULT_CONFIDENCE = 0.95  # of certificates: the usual one of bounds
WARMUP = 0.1  # enough rows to prepare features, few enough to lose
MOST_WARMUP = 100_000  # rows: more would not make the features better, and memory stays constant
WARMUP_REMEDY = (
    "pass the share of the rows for the warm-up, such as 0.1, or their number, such as 1000"
)
WARMUP_SHARE = number(0.0, 0.9, WARMUP_REMEDY, above=True)
# Of a unit: divided by more, every reward would be next to nothing.
UNIT_ROWS = integer(1, "pass the largest number of rows of a unit that count, such as 10", 10**6)
NO_UNIT = Verbatim("no unit")
WARMUP_ROWS = integer(1, WARMUP_REMEDY, MOST_WARMUP)
Probabilities = Mapping[Label, float]
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """The description of an option: its help, and how its value is typed on a command line.

    `kind` is 'text', 'file', 'number', 'count', 'flag', 'range' (two numbers), 'names' (with
    commas) or 'several' (of an option that is repeated).
    """

    help: str
    metavar: str | None = None
    kind: str = "text"
    choices: tuple[str, ...] = ()


class LogOptions(TypedDict, total=False):
    """The options that `us.logs.learn`, `coverage` and `certify` have in common."""

    action: Annotated[str | None, Option("Which action was played.  [default: action]", "COLUMN")]
    reward: Annotated[str | None, Option("What it earned.  [default: reward]", "COLUMN")]
    propensity: Annotated[
        str | None,
        Option("The probability with which it was played.  [default: propensity]", "COLUMN"),
    ]
    propensity_vector: Annotated[
        str | None,
        Option(
            "The propensities of all actions: a list in the order of --actions, or a mapping from "
            "labels, also as JSON; or none.  [default: p of dsjson]",
            "COLUMN",
        ),
    ]
    least_propensity: Annotated[
        float | None,
        Option(
            "In every row every action has at least this propensity: then certificates need fewer "
            "rows; learn needs --actions too.",
            "F",
            "number",
        ),
    ]
    time: Annotated[str | None, Option("The order of rows; sorted if they are not.", "COLUMN")]
    eligible: Annotated[str | None, Option("The actions that could have been played.", "COLUMN")]
    id: Annotated[
        str | None,
        Option("The id of a decision: rows with the id of an earlier row do not count.", "COLUMN"),
    ]
    unit: Annotated[
        str | None,
        Option(
            "The unit for which production drew an action once and kept it, such as a user: it "
            "counts as one decision.",
            "COLUMN",
        ),
    ]
    no_unit: Annotated[
        bool | None,
        Option(
            "Production drew an action in every row; with --unit, for each unit, and no other "
            "column is one.",
            kind="flag",
        ),
    ]
    unit_rows: Annotated[
        int | None,
        Option(
            "The reward of a unit is the sum over its first H rows, divided by H.  [default: the "
            "mean over all its rows]",
            "H",
            "count",
        ),
    ]
    repeated_rows: Annotated[
        RepeatedRowsOption | None,
        Option(
            "Whether equal rows far beyond chance prevent a decision.  [default: check]",
            choices=REPEATED_ROWS,
        ),
    ]
    preset: Annotated[
        str | None, Option("Columns of a well-known data set.", choices=tuple(PRESETS))
    ]
    format: Annotated[
        str | None, Option("Of files whose names do not say it.", choices=tuple(FORMATS))
    ]
    reward_range: Annotated[
        Sequence[float] | None,
        Option("The smallest and largest reward possible.  [default: 0 1]", "LOW HIGH", "range"),
    ]
    actions: Annotated[
        Iterable[Label] | str | os.PathLike[str] | None,
        Option("All actions: a file with one label a line, or a JSON list.", kind="file"),
    ]
    behavior: Annotated[
        str | os.PathLike[str] | Probabilities | None,
        Option(
            "Where propensities come from.  [default: logged, if there is such a column]",
            "logged|estimated|FILE",
        ),
    ]
    confidence: Annotated[
        float | None, Option("Of the certificate.  [default: 0.95]", kind="number")
    ]
    engine: Annotated[
        str | None,
        Option("Compute sums in no order: no curves; learn needs --horizon.", choices=ENGINES),
    ]


class QuestionOptions(LogOptions, total=False):
    """The options of `us.logs.certify`: the question that is asked about a policy."""

    against: Annotated[
        Any,
        Option(
            "The baseline of the gain.  [default: production]",
            "production|action:LABEL|policy:FILE",
        ),
    ]
    guardrail: Annotated[
        Any,
        Option(
            "A metric that may not become worse by more than a margin, such as "
            "latency_ms:0:2000:lower:20 (column, range, which values are better, margin), or a "
            "TOML file of them. Repeatable.",
            "NAME:LOW:HIGH:higher|lower:MARGIN",
            "several",
        ),
    ]
    segment: Annotated[
        Any,
        Option(
            "A column whose values, known before the action, get intervals that hold together.",
            "COLUMN=A,B,C",
        ),
    ]
    quarantined: Annotated[
        str | None,
        Option(
            "What certificates assume of quarantined rows.  [default: worst-case]",
            choices=tuple(one.value for one in QuarantinedRows),
        ),
    ]


class LearnOptions(LogOptions, total=False):
    """The options of `us.logs.learn`."""

    context: Annotated[
        str | Sequence[str] | None,
        Option("Columns of the context, numbers or categories.", "A,B,C", "names"),
    ]
    learner: Annotated[
        str | Learner[Any] | Mapping[str, Any] | None,
        Option(
            "Who learns, with parameters such as exp3-ix:coverage=20.  "
            "[default: what suits the log]",
            f"[{'|'.join(LEARNERS)}]",
        ),
    ]
    expert: Annotated[
        str | Sequence[str] | None,
        Option(
            "Columns with the probability of the logged action under models of your own, which "
            "become experts.",
            "A,B",
            "names",
        ),
    ]
    horizon: Annotated[int | None, Option("Fix the rate for so many rows.", kind="count")]
    warmup: Annotated[
        float | None,
        Option("Rows that prepare contexts: a share, or how many.  [default: 0.1]", kind="number"),
    ]


class AllOptions(LearnOptions, QuestionOptions, total=False):
    """All options; `target` is the `target_probability` of `us.logs.certify`."""

    target: str | None


def declared_options(options: type) -> Iterator[tuple[str, Option]]:
    """The options that a class declares, by name, in their order."""
    for name, hint in get_type_hints(options, include_extras=True).items():
        for option in getattr(hint, "__metadata__", ()):
            yield name, option


def with_options(options: type) -> Callable[[Command], Command]:
    """Show the declared options in the signature and the docstring of a function.

    Its docstring says "(options)" where they belong; its signature has them before `**options`.
    """
    hints = get_type_hints(options)
    declared = dict(declared_options(options))
    lines = [f"{name}: {option.help}" for name, option in declared.items()]
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hints[name])
        for name in declared
    ]

    def documented(function: Command) -> Command:
        function.__doc__ = (function.__doc__ or "").replace("(options)", "\n        ".join(lines))
        signature = inspect.signature(function)
        *own, rest = signature.parameters.values()
        shown: Any = function
        shown.__signature__ = signature.replace(parameters=[*own, *named, rest])
        return function

    return documented


@dataclass(frozen=True)
class Options:
    """Checked options; None stands for the value of an earlier run, or for the default."""

    columns: Mapping[str, Any]
    reward_range: tuple[float, float] | None = None
    actions: Actions | None = None
    behavior: PropensitySource | None = None
    probabilities: Probabilities | None = None
    learner: Wanted | None = None
    horizon: int | None = None
    confidence: float | None = None
    warmup: float = WARMUP
    format: str | None = None
    engine: str | None = None
    repeated_rows: RepeatedRowsOption | None = None
    least_propensity: float | None = None
    no_unit: bool = False
    unit_rows: int | None = None
    action_order: tuple[str, ...] | None = None
    question: Question = PLAIN_QUESTION

    @staticmethod
    def of(**passed: Unpack[AllOptions]) -> Options:
        """Check the options that a user passed.

        >>> Options.of(preset="obd", learner="exp3-ix").columns["reward"]
        'click'
        """
        for name in passed:
            if name not in AllOptions.__annotations__:
                alike = get_close_matches(name, AllOptions.__annotations__, 1)
                hint = f"; did you mean {alike[0]!r}?" if alike else ""
                raise TypeError(f"there is no option {name!r}{hint}")
        source, probabilities = _behavior(passed.get("behavior"))
        context, warmup = passed.get("context"), passed.get("warmup")
        if warmup is not None and not context:
            reason = "it prepares the features of contexts, and no columns of contexts are named"
            remedy = "leave it out, or name their columns with --context"
            raise InvalidArgument("warmup", warmup, reason, remedy)
        learner, least = passed.get("learner"), passed.get("least_propensity")
        if learner is not None:
            check_wanted(learner)
        for name in ("least_propensity", "propensity_vector"):
            value = passed.get(name)
            if value not in (None, NO_VECTORS) and source not in (None, LOGGED):
                reason = f"propensities are {source}, and it is about logged ones"
                raise InvalidArgument(name, value, reason, "leave it out")
        _one_of("repeated_rows", passed.get("repeated_rows"), REPEATED_ROWS)
        named: dict[str, Any] = {role: _column(role, passed.get(role)) for role in COLUMN_ROLES}
        named["context"] = (context,) if isinstance(context, str) else tuple(context or ()) or None
        expert = passed.get("expert")
        named["experts"] = (expert,) if isinstance(expert, str) else tuple(expert or ()) or None
        reward_range = passed.get("reward_range")
        scale = None if reward_range is None else RewardScale.from_range(reward_range)
        question = Question.of(
            passed.get("against"),
            passed.get("guardrail"),
            passed.get("segment"),
            passed.get("quarantined"),
        )
        no_unit = TRUTH.optional()("no_unit", passed.get("no_unit"))
        _check_ids(passed)
        _check_unit_rows(passed.get("unit_rows"), scale or RewardScale(), question)
        order = _order(passed.get("actions"))
        return Options(
            columns=_preset(passed.get("preset"))
            | {
                role: None if role == VECTOR and name == NO_VECTORS else name
                for role, name in named.items()
                if name is not None
            }
            | question.names,
            reward_range=None if scale is None else (scale.low, scale.high),
            actions=None if order is None else Actions.from_labels(order),
            action_order=None if isinstance(passed.get("actions"), Set) else order,
            behavior=source,
            probabilities=probabilities,
            learner=learner,
            horizon=HORIZON.optional()("horizon", passed.get("horizon")),
            confidence=CONFIDENCE.optional()("confidence", passed.get("confidence")),
            warmup=_warmup(WARMUP if warmup is None else warmup),
            format=passed.get("format"),
            engine=passed.get("engine"),
            repeated_rows=passed.get("repeated_rows"),
            least_propensity=LEAST_PROPENSITY.optional()("least_propensity", least),
            no_unit=bool(no_unit),
            unit_rows=UNIT_ROWS.optional()("unit_rows", passed.get("unit_rows")),
            question=question,
        )

    @property
    def confidence_or_default(self) -> float:
        """The confidence of certificates."""
        return self.confidence or DEFAULT_CONFIDENCE

    @property
    def scale(self) -> RewardScale:
        """The units of rewards, by default [0, 1]."""
        return RewardScale.from_range(self.reward_range)

    @property
    def compares_rows(self) -> bool:
        """Whether rows are compared: not if equal ones are allowed, or have ids or units."""
        named = self.columns.get("id") or self.columns.get("unit")
        return self.repeated_rows != ALLOW and named is None

    def warmup_of(self, rows: int) -> int:
        """The number of warm-up rows of a log with this many rows."""
        count = int(self.warmup * rows) if self.warmup < 1 else int(self.warmup)
        return min(max(1, count), MOST_WARMUP)

    def declared(self) -> frozenset[str]:
        """The actions of a list or of a given behavior, which are known before the log is read."""
        if self.actions is not None:
            return frozenset(self.actions.keys)
        return frozenset(label_key(label) for label in self.probabilities or ())

    def refuse_rows_without_unit(self) -> None:
        """Raise `InvalidArgument` if rows of a unit are counted, and there is no unit."""
        if self.unit_rows is not None and self.columns.get("unit") is None:
            reason = "it counts the rows of a unit, and no unit is named"
            raise InvalidArgument(
                "unit_rows", self.unit_rows, reason, "name its column with --unit"
            )

    def with_defaults_of(self, settings: Settings) -> Options:
        """The options, with the columns and the range of rewards of an earlier run as defaults."""
        roles = ("action", "reward", "propensity", "context", "experts", UNIT, VECTOR)
        columns = {role: getattr(settings.columns, role) for role in roles}
        known = {role: name for role, name in columns.items() if name is not None}
        same_unit = self.columns.get(UNIT) in (None, settings.columns.unit)
        combined = dataclasses.replace(
            self,
            columns=known | dict(self.columns),
            reward_range=self.reward_range or settings.reward_range,
            repeated_rows=self.repeated_rows or settings.repeated_rows,
            no_unit=self.no_unit or (settings.no_unit and same_unit),
            unit_rows=self.unit_rows or settings.unit_rows,
        )
        _check_ids(combined.columns)
        _check_unit_rows(combined.unit_rows, combined.scale, combined.question)
        return combined

    def with_defaults_of_all(self, policies: Sequence[Settings]) -> Options:
        """The options with the defaults of several policies, the first of them first.

        The columns of contexts, and of experts, are those of all policies.
        """
        combined = self
        for settings in policies:
            combined = combined.with_defaults_of(settings)
        several = {
            role: tuple(
                dict.fromkeys(name for one in policies for name in getattr(one.columns, role))
            )
            for role in ("context", "experts")
        }
        read = {role: names for role, names in several.items() if not self.columns.get(role)}
        return dataclasses.replace(combined, columns={**combined.columns, **read})

    def resumed_columns(self, settings: Settings) -> Columns:
        """The columns to read when learning goes on.

        Another file may have other names for its columns; its contexts must be the same.
        """
        require_same("context", self.columns.get("context"), settings.columns.context)
        require_same("expert", self.columns.get("experts"), settings.columns.experts)
        require_same("unit", self.columns.get("unit"), settings.columns.unit or NO_UNIT)
        require_same("unit_rows", self.unit_rows, settings.unit_rows or Verbatim("all rows"))
        columns = dataclasses.replace(settings.columns, **self.columns)
        if columns.propensity is columns.propensity_vector is None and settings.behavior == LOGGED:
            return dataclasses.replace(columns, propensity=PROPENSITY)
        return columns


def require_same(option: str, value: object, earlier: object) -> None:
    """Raise `InvalidArgument` if an option contradicts the value of the earlier run."""
    same, shown, before = value == earlier, value, earlier
    if isinstance(value, Actions) and isinstance(earlier, Actions):
        same = set(value.keys) == set(earlier.keys)  # 0.5 had another order of "2.0" and "10.0"
        shown, before = _differing_first(value, earlier), _differing_first(earlier, value)
    if value is not None and not same:
        known = "without one" if before is None else f"with {shorten(before)}"
        reason = f"the policy was learned {known}"
        remedy = "leave it out to go on as before, or begin again without --resume"
        raise InvalidArgument(option, shown, reason, remedy)


def _differing_first(actions: Actions, others: Actions) -> Verbatim:
    """The number of actions and a few of them, first those that are not among the others."""
    labels = sorted(actions.texts, key=lambda text: others.index(text) != UNKNOWN)
    return Verbatim(f"{len(labels):,} actions ({first_few(labels)})")


def _warmup(value: float) -> float:
    """A share of the rows, or a number of rows."""
    whole = isinstance(value, int | float) and value >= 1 and value == int(value)
    return float(WARMUP_ROWS("warmup", int(value)) if whole else WARMUP_SHARE("warmup", value))


def _preset(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    _one_of("preset", name, tuple(PRESETS))
    columns = PRESETS[name]
    return {role: getattr(columns, role) for role in ("action", "reward", "propensity")}


def _order(value: Iterable[Label] | str | os.PathLike[str] | None) -> tuple[str, ...] | None:
    """The declared actions, each once, in the order in which the user wrote them."""
    if isinstance(value, str | os.PathLike):
        return read_actions(Path(value))
    return None if value is None else tuple(dict.fromkeys(map(label_key, value)))


def _behavior(
    value: str | os.PathLike[str] | Probabilities | None,
) -> tuple[PropensitySource | None, Probabilities | None]:
    if value is None:
        return None, None
    if isinstance(value, Mapping):
        return GIVEN, check_probabilities("behavior", dict(value), "behavior")
    if isinstance(value, str) and value in NAMED_SOURCES:
        return NAMED_SOURCES[value], None
    return GIVEN, read_probabilities("behavior", Path(value))


def _column(role: str, name: Any) -> str | None:
    """The name of a column."""
    if name is not None and not isinstance(name, str):
        reason = "it is not the name of a column"
        raise InvalidArgument(role, name, reason, "pass one name, a text such as 'user'")
    return name


def _check_ids(columns: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` if both units and ids are named."""
    if columns.get("unit") is not None and columns.get("id") is not None:
        reason = "the rows of a unit are one decision, so ids of decisions are not read"
        raise InvalidArgument("id", columns["id"], reason, "leave it out")


def _check_unit_rows(most_rows: int | None, scale: RewardScale, question: Question) -> None:
    """Raise `InvalidArgument` if rows that a unit does not have earn less than any reward."""
    for one in question.guardrails:
        if most_rows is not None and not one.low <= 0.0 <= one.high:
            reason = f"rows that a unit does not have count as 0, out of the range of {one.name}"
            remedy = "give it a range with 0 in it, or leave out --unit-rows for the mean per row"
            raise InvalidArgument("guardrail", one.name, reason, remedy)
    if most_rows is not None and not scale.low <= 0.0 <= scale.high:
        reason = "rows that a unit does not have count as 0, which is out of the range of rewards"
        remedy = "pass a --reward-range with 0 in it, or leave out --unit-rows for the mean per row"
        raise InvalidArgument("unit_rows", most_rows, reason, remedy)


def _one_of(argument: str, value: str | None, names: tuple[str, ...]) -> None:
    if value is not None and value not in names:
        raise InvalidArgument(
            argument, value, "there is no such", f"pass one of {', '.join(names)}"
        )
