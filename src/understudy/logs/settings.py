"""The learners of logs by name, with their theorems, and the settings that policy.json stores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from understudy.behaviors import Behavior, Logged
from understudy.certificates.evidence import FIRST_RULES, RULES
from understudy.constraints import HORIZON, integer
from understudy.errors import InvalidArgument, InvalidSnapshot, NotSaveable, Verbatim
from understudy.formatting import counted, list_some
from understudy.learners import Exp4, Outside
from understudy.logs.features import (
    NEED_CONTEXTS,
    WITHOUT_PROPENSITIES,
    WITHOUT_PROPENSITIES_OF_COLUMNS,
    LearnerFactory,
)
from understudy.logs.schema import LOGGED, Columns, PropensitySource, RewardScale, is_unicode
from understudy.protocols import LEARNER, PRODUCTION, Learner
from understudy.snapshots import as_data, fields_as_data, fields_from_data

REMEDY = "pass a policy.json that `understudy learn` wrote, unchanged"
RepeatedRowsOption = Literal["check", "allow"]
CHECK: RepeatedRowsOption = "check"  # decide nothing if rows are copies of each other
ALLOW: RepeatedRowsOption = "allow"  # equal rows are separate decisions
REPEATED_ROWS = (CHECK, ALLOW)


class Theorem(StrEnum):
    """The theorem that bounds the regret of a learner. `report.words` states its bound."""

    NONE = "none"
    KNOWN_BEHAVIOR = "theorem 1"
    UNKNOWN_BEHAVIOR = "theorem 2"
    LINEAR = "theorem 3"
    COVERAGE_ADAPTIVE = "coverage-adaptive"
    FIRST_ORDER = "first-order"
    MIXTURE = "mixture"


class Assumption(StrEnum):
    """An assumption of a theorem that a log does not meet, or that no log can show."""

    FIXED_BEHAVIOR = "fixed behavior"
    FIXED_RATE = "fixed rate"
    SMALL_RATE = "small rate"
    DECLARED_ACTIONS = "declared actions"
    KNOWN_PROPENSITIES = "known propensities"
    TIME_ORDER = "time order"


UNKNOWN, CONTEXTUAL = "exp3-ix-unknown", "lin-prod-compact"
GRID, MIXTURE, REGRESSION = "prod-grid", "exp4", "ridge"
OWN = "own"  # a learner that the user made
# The theorem of each learner and the assumptions to check, with a horizon and without.
GUARANTEES: dict[str, tuple[tuple[Theorem, *tuple[Assumption, ...]], ...]] = {
    "exp3": ((Theorem.NONE, Assumption.SMALL_RATE), (Theorem.NONE, Assumption.FIXED_RATE)),
    "exp3-ix": ((Theorem.KNOWN_BEHAVIOR,), (Theorem.KNOWN_BEHAVIOR,)),
    "prod": ((Theorem.KNOWN_BEHAVIOR,), (Theorem.KNOWN_BEHAVIOR,)),
    "coverage-adaptive": ((Theorem.COVERAGE_ADAPTIVE,), (Theorem.COVERAGE_ADAPTIVE,)),
    GRID: ((Theorem.FIRST_ORDER,), (Theorem.FIRST_ORDER,)),
    UNKNOWN: (
        (Theorem.UNKNOWN_BEHAVIOR, Assumption.FIXED_BEHAVIOR),
        (Theorem.NONE, Assumption.FIXED_RATE, Assumption.FIXED_BEHAVIOR),
    ),
    CONTEXTUAL: ((Theorem.LINEAR,), (Theorem.LINEAR,)),
    REGRESSION: ((Theorem.NONE,), (Theorem.NONE,)),
    "tables": ((Theorem.FIRST_ORDER,), (Theorem.FIRST_ORDER,)),
    MIXTURE: ((Theorem.MIXTURE,), (Theorem.MIXTURE,)),
    OWN: ((Theorem.NONE,), (Theorem.NONE,)),
}
LEARNERS = tuple(name for name in GUARANTEES if name != OWN)
TAKE_CONTEXTS = (*NEED_CONTEXTS, OWN)
# The parameters that `--learner NAME:PARAMETER=VALUE,...` takes.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "exp3": ("eta",),
    "exp3-ix": ("eta", "gamma", "coverage"),
    "prod": ("eta", "coverage"),
    "coverage-adaptive": ("multiplier", "gain"),
    GRID: ("production", "prior"),
    UNKNOWN: ("eta", "width"),
    CONTEXTUAL: ("eta", "coverage"),
    REGRESSION: ("ridge", "temperature", "beta", "features"),
    "tables": (),
    MIXTURE: ("features",),
}
SHOWN = 8  # names of features in a message
DIGITS = 9  # of a number of features: as many as a 32-bit number has
NOT_NUMBERS = ("gain", "prior", "width")
Named = str | Mapping[str, str]  # the name of a learner, or the names of experts
VERSION_OF_RULES = integer(FIRST_RULES, "update Understudy to read it", RULES)


def guarantee(learner: str, horizon: int | None) -> tuple[Theorem, *tuple[Assumption, ...]]:
    """The theorem of a learner, and the assumptions of it that need a check."""
    with_horizon, without = GUARANTEES[learner.partition(":")[0]]
    return without if horizon is None else with_horizon


def parse_learner(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of a learner.

    >>> parse_learner("exp3-ix:coverage=20")
    ('exp3-ix', {'coverage': 20.0})
    """
    name, _, listed = text.partition(":")
    if name not in LEARNERS:
        reason, remedy = "there is no such learner", f"pass one of {', '.join(LEARNERS)}"
        raise InvalidArgument("learner", text, reason, remedy)
    parameters: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in listed.split(","))):
        key, equals, value = part.partition("=")
        remedy = f"pass {name}:PARAMETER=VALUE,..."
        if key not in PARAMETERS[name]:
            known = ", ".join(PARAMETERS[name]) or "none"
            reason = f"{key!r} is no parameter of {name}, which has {known}"
            raise InvalidArgument("learner", text, reason, remedy)
        if not equals or key in parameters:
            reason = f"{key} {'is there twice' if equals else 'has no value'}"
            raise InvalidArgument("learner", text, reason, remedy)
        parameters[key] = value if key in NOT_NUMBERS else _number(text, key, value)
    return name, parameters


def _number(text: str, key: str, value: str) -> float | int:
    """The value of a parameter; the number of Fourier features is a whole one, of few digits."""
    whole = key == "features"
    try:
        if whole and value.isdecimal() and len(value) <= DIGITS:
            return int(value)
        number = math.nan if whole else float(value)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    kind = "whole number of at least 0" if whole else "finite number"
    reason = f"{key} is {value!r}, and no {kind}"
    raise InvalidArgument("learner", text, reason, f"pass {key}=NUMBER")


@dataclass(frozen=True, eq=False)
class Choice:
    """A learner with its name and the horizon that it was made for.

    `wanted` is the name by which it was asked for, or those of its experts.
    """

    name: str
    learner: Learner[Any]
    horizon: int | None
    rules: int = FIRST_RULES
    wanted: Named | None = None

    def settings(
        self, columns: Columns, scale: RewardScale, source: PropensitySource, *unmet: Assumption
    ) -> Settings:
        """The settings of a first run; `unmet` come after the assumptions of the theorem."""
        theorem, *assumptions = guarantee(self.name, self.horizon)
        return Settings(
            columns=columns,
            reward_range=(scale.low, scale.high),
            behavior=source,
            learner=self.name,
            horizon=self.horizon,
            theorem=theorem,
            unmet=(*assumptions, *unmet),
            rules=self.rules,
            wanted=None if self.wanted == self.name else self.wanted,
        )


def name_of_default(behavior: Behavior | None, *, contexts: bool) -> str:
    """The name of the default learner for a log, by its behavior policy (None if unknown)."""
    if contexts:
        return REGRESSION if behavior is None else MIXTURE
    return UNKNOWN if behavior is None else GRID


def name_of_first_default(behavior: Behavior | None, *, contexts: bool) -> str:
    """The default of 0.5, which studies go on with that do not name their learner."""
    if contexts:
        return CONTEXTUAL
    return UNKNOWN if behavior is None else "coverage-adaptive"


Wanted = str | Learner[Any] | Mapping[str, Any]  # a name, a learner, or experts by name


def check_wanted(wanted: object) -> None:
    """Raise `InvalidArgument` if no log has such a learner: a wrong name, or no learner at all."""
    if isinstance(wanted, str):
        parse_learner(wanted)
    elif isinstance(wanted, Mapping):
        remedy = "name experts by texts, such as {'safe': 'production', 'grid': 'prod-grid'}"
        if not wanted:
            raise InvalidArgument("learner", wanted, "there is no expert in it", remedy)
        for name, expert in wanted.items():
            if not (isinstance(name, str) and name and is_unicode(name)):
                raise InvalidArgument("learner", name, "it is no name of an expert", remedy)
            if isinstance(expert, Outside):
                reason = f"it is the column {expert.name!r}"
                raise InvalidArgument("learner", name, reason, f"pass expert={expert.name!r}")
            if not isinstance(expert, str):
                LEARNER("learner", expert)
            elif expert != PRODUCTION:
                parse_learner(expert)
    else:
        LEARNER("learner", wanted)


def refuse_unsaveable(wanted: Wanted | None) -> None:
    """Raise `InvalidArgument` if policy.json cannot hold a learner that the user made."""
    made = wanted if isinstance(wanted, Mapping) else {"learner": wanted}
    for name, learner in made.items():
        if learner is None or isinstance(learner, str):
            continue
        try:
            as_data(learner, name)
        except NotSaveable as error:
            reason = f"policy.json cannot hold it: {error}"
            remedy = (
                "leave out `out` and use the policy of the result, or write the model's "
                "probabilities into a column and name it with --expert"
            )
            raise InvalidArgument("learner", Verbatim(name), reason, remedy) from None


def choose(wanted: Wanted, factory: LearnerFactory, experts: Sequence[str] = ()) -> Choice:
    """Make the learner that the user wants; `experts` are columns of the log, to be mixed with it.

    >>> from understudy.behaviors import Logged
    >>> choose("exp3-ix:eta=0.5", LearnerFactory(Logged(2), 2)).learner.eta
    0.5
    """
    name, learner = _made(wanted, factory)
    if experts and learner.spec.columns != tuple(experts):
        _check_mixture(experts, factory, WITHOUT_PROPENSITIES_OF_COLUMNS)
        if isinstance(learner, Exp4):
            inner = dict(zip(learner.names, learner.experts, strict=True))
        else:
            inner = {name: factory.make(GRID, {"production": 0.0}) if name == GRID else learner}
        whole: dict[str, Any] = {key: one for key, one in inner.items() if isinstance(one, Outside)}
        whole = whole or {PRODUCTION: PRODUCTION}
        for one in experts:
            if one in {**whole, **inner}:
                reason = "the mixture has an expert of this name already"
                raise InvalidArgument("expert", one, reason, "rename the column")
        columns = {one: Outside(one) for one in experts}
        name, learner = MIXTURE, factory.mix({**whole, **columns, **inner})
    _check_kind(name, learner, factory, tuple(experts))
    return Choice(name, learner, factory.horizon, factory.rules, named(wanted))


def named(wanted: Wanted) -> Named:
    """The name of a learner, or those of experts; 'own' for an object, which has none.

    >>> named({"safe": "production", "mine": object()})
    {'safe': 'production', 'mine': 'own'}
    """
    if isinstance(wanted, Mapping):
        return {name: one if isinstance(one, str) else OWN for name, one in wanted.items()}
    return wanted if isinstance(wanted, str) else OWN


def _made(wanted: Wanted, factory: LearnerFactory) -> tuple[str, Learner[Any]]:
    if isinstance(wanted, str):
        name, parameters = parse_learner(wanted)
        return wanted, factory.make(name, parameters)
    if isinstance(wanted, Mapping):
        _check_mixture(wanted, factory, WITHOUT_PROPENSITIES)
        experts = {}
        for key, expert in wanted.items():
            if isinstance(expert, str):
                experts[key] = expert if expert == PRODUCTION else _expert(expert, factory)
            else:
                _check_shape(key, expert, factory)
                experts[key] = expert
        return MIXTURE, factory.mix(experts)
    return OWN, LEARNER("learner", wanted)


def _check_shape(name: str, learner: Learner[Any], factory: LearnerFactory) -> None:
    """Raise `InvalidArgument` if a learner of the user's has other actions or features."""
    spec, warmup = learner.spec, factory.warmup
    if spec.n_actions != factory.n_actions:
        reason = f"it has {spec.n_actions} actions, and the log {factory.n_actions}"
        raise InvalidArgument("learner", name, reason, f"make it for {factory.n_actions} actions")
    if warmup is not None and spec.features not in {None, (warmup.dimension,)}:
        reason = (
            f"it takes features {spec.features}, and these contexts are encoded as "
            f"{counted(warmup.dimension, 'feature')} ({list_some(warmup.encoder.features, SHOWN)})"
        )
        fitting = ", ".join(fitting_names(factory.behavior, contexts=True))
        remedy = f"make it for {warmup.dimension} features, or pass one of {fitting}"
        raise InvalidArgument("learner", name, reason, remedy)


def _check_mixture(experts: Iterable[str], factory: LearnerFactory, remedy: str) -> None:
    """Raise `InvalidArgument` if these experts cannot be mixed: that needs propensities."""
    if factory.behavior is None:
        reason = "a mixture needs the propensities of the behavior policy, and they are unknown"
        names = Verbatim(", ".join(map(str, experts)))
        raise InvalidArgument("experts", names, reason, remedy)


def _expert(text: str, factory: LearnerFactory) -> Learner[Any]:
    """An expert of a mixture by name: LinProd scales its features itself, and none is a mixture."""
    name, parameters = parse_learner(text)
    if name == CONTEXTUAL:
        factory.check(name)
        return factory.bounded_lin_prod(parameters)
    if name == GRID:
        return factory.make(name, {"production": 0.0, **parameters})
    return factory.make(name, parameters)


def _check_kind(
    name: str, learner: Learner[Any], factory: LearnerFactory, experts: tuple[str, ...]
) -> None:
    """Raise `InvalidArgument` if a learner cannot learn from this log; say which ones can."""
    spec, behavior, warmup = learner.spec, factory.behavior, factory.warmup
    reason = None
    _check_shape(name, learner, factory)
    if spec.propensities and not isinstance(behavior, Logged):
        reason = "it needs a propensity with every row, and the log has none"
    elif spec.columns != experts:
        missing = ", ".join(spec.columns)
        reason, remedy = f"it follows the columns {missing}", f"name them with expert, {missing}"
        raise InvalidArgument("learner", Verbatim(name), reason, remedy)
    elif warmup is None and spec.features is not None:
        reason = "it learns from contexts, and none are named"
    if reason is not None:
        fitting = ", ".join(fitting_names(behavior, contexts=warmup is not None))
        remedy = f"pass one of {fitting}"
        raise InvalidArgument("learner", Verbatim(name), reason, remedy)


def refuse_without_contexts(choice: Choice, behavior: Behavior | None) -> None:
    """Raise `InvalidArgument` if a learner ignores the contexts that the user named."""
    if choice.learner.spec.features is None:
        fitting = ", ".join(fitting_names(behavior, contexts=True))
        remedy = f"pass {fitting}, or no contexts"
        if choice.name == MIXTURE:
            remedy = "add an expert that uses them, such as ridge or tables, or pass no contexts"
        raise InvalidArgument("learner", choice.name, "it ignores contexts", remedy)


def fitting_names(behavior: Behavior | None, *, contexts: bool) -> list[str]:
    """The learners that can learn from a log."""
    if behavior is None:
        return [REGRESSION, CONTEXTUAL] if contexts else [UNKNOWN]
    if contexts:
        return [MIXTURE, REGRESSION, "tables", CONTEXTUAL]
    return [name for name in LEARNERS if name not in TAKE_CONTEXTS]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The choices of the first run, which later runs keep: columns, scale, behavior, learner.

    `rules` is the version of the rules that made the learner; files of 0.5 do not name theirs.
    `wanted` is the learner as the user named it, if `learner` is the mixture that was made of it:
    one that is mixed with columns, or experts by name. `no_unit` says that production drew an
    action in every row, or for each unit, and `unit_rows` how many rows of a unit count at most,
    None for all.
    """

    columns: Columns
    reward_range: tuple[float, float]
    behavior: PropensitySource
    learner: str
    horizon: int | None
    theorem: Theorem
    unmet: tuple[Assumption, ...]
    repeated_rows: RepeatedRowsOption = CHECK
    rules: int = FIRST_RULES
    wanted: Named | None = None
    no_unit: bool = False
    unit_rows: int | None = None

    @property
    def scale(self) -> RewardScale:
        """The units of rewards."""
        return RewardScale(*self.reward_range)

    @property
    def experts(self) -> Mapping[str, str] | None:
        """The experts that the user named; None if they named a learner, or none."""
        return self.wanted if isinstance(self.wanted, Mapping) else None

    def as_data(self) -> dict[str, Any]:
        """The settings as policy.json has them; those that 0.5 did not have, only if they are set.

        So a snapshot of 0.5 in a store has the bits of the same state now.
        """
        data: dict[str, Any] = fields_as_data(self)
        for name, absent in COLUMNS_ABSENT.items():
            if data["columns"][name] == absent:
                del data["columns"][name]
        for name, absent in UNITS_ABSENT.items():
            if data[name] == absent:
                del data[name]
        if self.repeated_rows == CHECK:
            del data["repeated_rows"]
        if self.rules == FIRST_RULES:
            del data["rules"]
        if self.wanted is None:
            del data["wanted"]
        return data

    @staticmethod
    def from_data(data: dict[str, Any]) -> Settings:
        """The settings of a policy.json, or `InvalidSnapshot`."""
        logged = data["behavior"] == LOGGED
        settings = fields_from_data(
            Settings,
            {"repeated_rows": CHECK, "rules": FIRST_RULES, "wanted": None} | UNITS_ABSENT | data,
            "settings",
            REMEDY,
            columns=lambda columns: _columns(columns, logged=logged),
            reward_range=lambda two: dataclasses.astuple(RewardScale.from_range(two or ())),
            horizon=lambda n: HORIZON.optional()("horizon", n),
            theorem=str,
            unmet=_assumptions,
            rules=lambda version: VERSION_OF_RULES("rules", version),
            wanted=_wanted,
        )
        most = settings.unit_rows
        if not isinstance(settings.no_unit, bool) or not (most is None or isinstance(most, int)):
            raise InvalidSnapshot("unit_rows", most, "it is no number of rows", REMEDY)
        if settings.repeated_rows not in REPEATED_ROWS:
            raise InvalidSnapshot("repeated_rows", settings.repeated_rows, "unknown", REMEDY)
        if settings.learner.partition(":")[0] not in GUARANTEES:
            raise InvalidSnapshot("learner", settings.learner, "there is no such learner", REMEDY)
        theorem, *_ = guarantee(settings.learner, settings.horizon)
        return dataclasses.replace(settings, theorem=theorem)


COLUMNS_ABSENT: dict[str, Any] = {
    "id": None,
    "experts": [],
    "unit": None,
    "propensity_vector": None,
    "metrics": [],
    "segments": [],
}  # of the columns, in policy.json where a run has none, as in release 0.5
UNITS_ABSENT: dict[str, Any] = {"no_unit": False, "unit_rows": None}  # in older files

# The sentences that 0.5.0 wrote. Those about contexts are left out: they follow from the features.
SENTENCES = {
    "the behavior policy must be the same in all rows; the report's drift test can deny it": (
        Assumption.FIXED_BEHAVIOR
    ),
    "without a horizon its rate falls with time, which no theorem covers": Assumption.FIXED_RATE,
    "without a horizon its rate falls with time, which no theorem covers yet": (
        Assumption.FIXED_RATE
    ),
    "its bound needs a rate below every propensity, which rare actions break": (
        Assumption.SMALL_RATE
    ),
    "the list of actions was read from the log itself; declare it with --actions FILE if it was "
    "known before": Assumption.DECLARED_ACTIONS,
    "there is no column 'propensity'; if the log has propensities, name their column with "
    "--propensity, or a file of fixed ones with --behavior": Assumption.KNOWN_PROPENSITIES,
    "rows were taken to be in the order of time; --time COLUMN checks it": Assumption.TIME_ORDER,
}


def _assumptions(texts: Iterable[str]) -> tuple[Assumption, ...]:
    known = {**SENTENCES, **{one.value: one for one in Assumption}}
    return tuple(known[text] for text in texts if text in known)


def _wanted(data: Any) -> Named | None:
    texts = data.values() if isinstance(data, dict) else () if data is None else (data,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidSnapshot("wanted", data, "it is no name, and no names by name", REMEDY)
    return data  # type: ignore[no-any-return] # its type is checked above


def _columns(data: dict[str, Any], *, logged: bool) -> Columns:
    several = dict.fromkeys(("context", "experts", "metrics", "segments"), tuple)
    columns = fields_from_data(Columns, COLUMNS_ABSENT | data, "columns", REMEDY, **several)
    needed = {columns.action, columns.reward}
    needed |= {*columns.context, *columns.experts, *columns.metrics, *columns.segments}
    if logged:
        found = columns.propensity if columns.propensity_vector is None else None
        needed.add(found or columns.propensity_vector)  # type: ignore[arg-type] # checked below
    optional = {columns.propensity, columns.time, columns.eligible, columns.target, columns.id}
    optional = (optional | {columns.unit, columns.propensity_vector}) - {None}
    if not all(isinstance(name, str) for name in needed | optional):
        raise InvalidSnapshot("columns", data, "a column has no name", REMEDY)
    return columns
