"""What the page shows of a study, made of values: a verdict, numbers, and parts of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from understudy.formatting import count, counted, percent, plain
from understudy.logs.evaluation.verdicts import VerdictKind
from understudy.report import Report
from understudy.report.render import environment, sections
from understudy.report.tables import TextCell, TextColumn, TextTable
from understudy.report.words import Mark

Kind = VerdictKind | Literal["waiting", "warming up", "stopped"]
WAITING, WARMING_UP = Mark("…", "Waiting", "open"), Mark("…", "Warming up", "open")
STOPPED = Mark("!", "Stopped", "bad")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)  # not those of strftime, which speaks the language of the machine
MEANINGS = {
    "conflict": "contradicts what was sent before about the same decision",
    "malformed": "was not an event of this study; counted since the service started",
    "late": "a reward that came after its wait was over",
    "unknown decision": "a reward for an id that no decision has",
}
SECTIONS = ("bounds", "care", "certificate", "policy", "coverage")
RARE, FEW = 0.1, 10.0  # events a second: hardly any; so many that a fraction says nothing


@dataclass(frozen=True, kw_only=True)
class About:
    """What a study is: its settings as (name, value), and an event as one would be sent."""

    name: str
    settings: Sequence[tuple[str, str]] = ()
    example: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What became of the events of a study.

    Of all `decisions`, so many were `learned` from, and so many wait for their reward or for an
    earlier decision; `expired` ones were counted with the default reward, and `late` rewards came
    after that. `known` events were sent again and counted once, `refused` ones by reason. Nothing
    is learned past the oldest decision without a reward, which is waited for until `blocked_until`.
    `warmup_left` is how many decisions prepare the contexts, if any do. `fault` says why the study
    has stopped learning, if it has.
    """

    decisions: int = 0
    learned: int = 0
    waiting: int = 0
    expired: int = 0
    late: int = 0
    known: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    events_per_second: float = 0.0
    promoted_since: datetime | None = None
    warmup_left: int | None = None
    archived: bool = False
    blocked_until: datetime | None = None
    fault: str | None = None

    @property
    def rejected(self) -> dict[str, int]:
        """All that was not taken, by reason, the most frequent first."""
        found = {"late": self.late, **self.refused} if self.late else dict(self.refused)
        return dict(sorted(found.items(), key=lambda item: -item[1]))


class Headline(NamedTuple):
    """The verdict about a study: its kind, how it looks, and the sentence that follows its word."""

    kind: Kind
    mark: Mark
    why: str

    @property
    def sentence(self) -> str:
        """The word and why, in a line."""
        return f"{self.mark.word}: {self.why}"


def headline_of(report: Report | None, counters: Counters) -> Headline:
    """What to do about a study now.

    >>> headline_of(None, Counters()).sentence
    'Waiting: no reward is known yet.'
    >>> headline_of(None, Counters(decisions=660, warmup_left=340)).sentence
    'Warming up: 340 more decisions prepare the contexts.'
    >>> headline_of(None, Counters(fault="all contexts are alike")).sentence
    'Stopped: all contexts are alike.'
    """
    if counters.fault is not None:
        return Headline("stopped", STOPPED, f"{counters.fault}.")
    if counters.warmup_left:
        prepare = "prepares" if counters.warmup_left == 1 else "prepare"
        left = counted(counters.warmup_left, "more decision")
        return Headline("warming up", WARMING_UP, f"{left} {prepare} the contexts.")
    if report is None or not counters.learned:
        return Headline("waiting", WAITING, "no reward is known yet.")
    if report.verdict_kind != "promote" or report.certificate is None:
        return Headline(report.verdict_kind, report.mark, report.verdict)
    since = counters.promoted_since
    when = "" if since is None else f"since {_day(since)}, "
    confidence = percent(report.certificate.confidence)
    return Headline("promote", report.mark, f"{when}with {confidence} confidence.")


def _day(moment: datetime) -> str:
    day = moment.astimezone(UTC)
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def summarize(name: str, report: Report | None, counters: Counters) -> dict[str, Any]:
    """One study in a list of them, as JSON.

    >>> one = summarize("router", None, Counters(decisions=1200, events_per_second=2.5))
    >>> one["study"], one["word"], one["why"], one["numbers"]
    ('router', 'Waiting', 'no reward is known yet.', '1,200 decisions · 2.5 events a second')
    """
    headline = headline_of(report, counters)
    rate = _rate(counters.events_per_second)
    return {
        "study": name,
        "archived": counters.archived,
        "kind": headline.kind,
        "style": headline.mark.style,
        "sign": headline.mark.sign,
        "verdict": plain(headline.sentence),
        "word": headline.mark.word,
        "why": plain(headline.why),
        "numbers": f"{counted(counters.decisions, 'decision')} · {rate} events a second",
    }


def show(about: About, report: Report | None, counters: Counters) -> dict[str, Any]:
    """All that the page of a study shows, as JSON; its fragments are HTML that may be trusted.

    >>> found = show(About(name="router"), None, Counters(refused={"conflict": 2}))
    >>> found["verdict"], found["counters"]["refused"]
    ('Waiting: no reward is known yet.', {'conflict': 2})
    >>> sorted(name for name, part in found["fragments"].items() if part)
    ['events', 'rejected']
    """
    judged = report if counters.learned else None
    drawn = {} if judged is None else sections(judged, f"at /v1/studies/{about.name}/coverage")
    facts = [*about.settings, *(() if judged is None else judged.facts)]
    made: Any = environment("understudy.live.web").get_template("parts.html").module  # its macros
    fragments = {
        **{name: str(drawn.get(name, "")) for name in SECTIONS},
        "events": made.events(_events(counters), _blocked(counters)),
        "rejected": made.rejected(_rejections(counters)),
        "settings": made.settings(facts) if facts else "",
    }
    return {
        **summarize(about.name, report, counters),
        "counters": _numbers(counters),
        "example": None if counters.decisions else dict(about.example),
        "fragments": {name: str(text).strip() for name, text in fragments.items()},
    }


def _numbers(counters: Counters) -> dict[str, Any]:
    """As JSON knows them: times are ISO 8601."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(counters).items()
    }


def _rate(events_per_second: float) -> str:
    if not events_per_second or events_per_second >= FEW:
        return count(round(events_per_second))
    return f"{events_per_second:.1f}" if events_per_second >= RARE else f"< {RARE}"


def _events(counters: Counters) -> dict[str, str]:
    return {
        "events a second": _rate(counters.events_per_second),
        "decisions": count(counters.decisions),
        "learned from": count(counters.learned),
        "wait for their turn": count(counters.waiting),
        "had the default reward": count(counters.expired),
        "sent again, counted once": count(counters.known),
    }


def _blocked(counters: Counters) -> str:
    until = counters.blocked_until
    if until is None or not counters.waiting:
        return ""
    return (
        "Decisions are learned from in their order: the oldest one without a reward is waited for "
        f"until {_day(until)}, {until.astimezone(UTC):%H:%M:%S} UTC."
    )


def _rejections(counters: Counters) -> TextTable:
    columns = (
        TextColumn("reason", words=True),
        TextColumn("what it means", words=True),
        TextColumn("events"),
    )
    rows = [
        (TextCell(reason), TextCell(MEANINGS.get(reason, "–")), TextCell(count(events), events))
        for reason, events in counters.rejected.items()
    ]
    return TextTable("Events that were not taken", columns, rows)
