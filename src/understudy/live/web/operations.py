"""The operations of the API, from which routes and the OpenAPI document are made."""

from __future__ import annotations

from understudy.live.models import Event
from understudy.live.spec import NAMING, StudySpec
from understudy.live.web import models
from understudy.live.web.handlers import Handlers
from understudy.live.web.openapi import Content, Operation, Parameter
from understudy.live.web.streams import Streams

STUDY = Parameter(
    "study",
    {"type": "string", "pattern": NAMING},
    "The name of a study.",
    "router",
)
ARCHIVED = Parameter(
    "archived", {"type": "string", "enum": ["true", "false"]}, "Archived ones too.", "true"
)
CONTEXT = Parameter(
    "context",
    {"type": "object", "additionalProperties": True},
    "Where the study has contexts: one of them, as JSON.",
    {"age": 40.0},
    json=True,
)
FROM_SNAPSHOT = (
    Parameter("name", STUDY.schema, "The name of the new study.", "router-2", required=True),
    Parameter(
        "reward_wait",
        {"type": "number", "exclusiveMinimum": 0},
        "Seconds that a decision waits for its reward.",
        3600.0,
    ),
    Parameter("default_reward", {"type": "number"}, "If its reward does not come.", 0.0),
)
EVENT = {"id": "d-1", "action": "small", "propensity": 0.5, "reward": 1.0}
SPEC = {"name": "router", "actions": ["small", "large"], "reward_wait": 600.0}
UNKNOWN = {404: "There is no such study."}
TAKING = {**UNKNOWN, 409: "The study is archived, or the event contradicts what is known."}
NDJSON, EVENTS = "application/x-ndjson", "text/event-stream"


def operations(handlers: Handlers, streams: Streams) -> list[Operation]:
    """Return all operations under /v1, in the order of the document."""
    return [*_feedback(handlers), *_answers(handlers), *_studies(handlers), *_live(streams)]


def _studies(handlers: Handlers) -> list[Operation]:
    return [
        Operation(
            "POST",
            "/v1/studies",
            "create_study",
            "studies",
            "Create a study",
            handlers.create_study,
            "What production does, what it earns, how long rewards take, and who learns.",
            request=Content(StudySpec, SPEC),
            response=Content(models.StudyNow),
            status=201,
            refusals={409: "There is a study of this name already."},
        ),
        Operation(
            "GET",
            "/v1/studies",
            "read_studies",
            "studies",
            "List studies",
            handlers.read_studies,
            parameters=[ARCHIVED],
            response=Content(models.StudyList),
        ),
        Operation(
            "GET",
            "/v1/studies/{study}",
            "read_study",
            "studies",
            "A study, and what it has seen",
            handlers.read_study,
            parameters=[STUDY],
            response=Content(models.StudyNow),
            refusals=UNKNOWN,
        ),
        Operation(
            "POST",
            "/v1/studies/{study}/archive",
            "archive_study",
            "studies",
            "Archive a study",
            handlers.archive_study,
            "It takes no more decisions, only rewards of those that wait; what was learned stays.",
            parameters=[STUDY],
            response=Content(models.StudyNow),
            refusals=UNKNOWN,
        ),
        Operation(
            "POST",
            "/v1/snapshots",
            "load_snapshot",
            "studies",
            "Create a study that goes on from a policy.json",
            handlers.load_snapshot,
            "The body is what `understudy learn` wrote, or what another service's snapshot gave.",
            parameters=FROM_SNAPSHOT,
            request=Content(),
            response=Content(models.StudyNow),
            status=201,
            refusals={409: "There is a study of this name already."},
        ),
    ]


def _feedback(handlers: Handlers) -> list[Operation]:
    return [
        Operation(
            "POST",
            "/v1/studies/{study}/events",
            "send_event",
            "feedback",
            "Send an event",
            handlers.send_event,
            "A decision with its reward, a decision alone, or the reward of a decision that was "
            "sent before. It is on disk when it is answered.",
            parameters=[STUDY],
            request=Content(Event, EVENT),
            response=Content(models.EventResult),
            refusals=TAKING,
        ),
        Operation(
            "POST",
            "/v1/studies/{study}/batches",
            "send_batch",
            "feedback",
            "Send up to 1000 events",
            handlers.send_batch,
            "If one of them is malformed, none is taken.",
            parameters=[STUDY],
            request=Content(models.Batch, {"events": [EVENT]}),
            response=Content(models.BatchResult),
            refusals=TAKING,
        ),
    ]


def _answers(handlers: Handlers) -> list[Operation]:
    return [
        Operation(
            "GET",
            "/v1/studies/{study}/policy",
            "read_policy",
            "answers",
            "What the understudy would do now",
            handlers.read_policy,
            parameters=[STUDY, CONTEXT],
            response=Content(models.PolicyNow),
            refusals=UNKNOWN,
        ),
        Operation(
            "POST",
            "/v1/studies/{study}/draw",
            "draw_action",
            "answers",
            "Draw an action from the policy",
            handlers.draw_action,
            "With its probability. Nothing is written: if it is played, send it as an event.",
            parameters=[STUDY],
            request=Content(models.Draw, {}, required=False),
            response=Content(models.DrawResult),
            refusals=UNKNOWN,
        ),
        Operation(
            "GET",
            "/v1/studies/{study}/certificate",
            "read_certificate",
            "answers",
            "The verdict, the certificate, and its curve",
            handlers.read_certificate,
            parameters=[STUDY],
            response=Content(models.CertificateNow),
            refusals=UNKNOWN,
        ),
        Operation(
            "GET",
            "/v1/studies/{study}/coverage",
            "read_coverage",
            "answers",
            "What the log can say about each action",
            handlers.read_coverage,
            parameters=[STUDY],
            response=Content(models.CoverageNow),
            refusals=UNKNOWN,
        ),
        Operation(
            "GET",
            "/v1/studies/{study}/snapshot",
            "read_snapshot",
            "answers",
            "policy.json, as understudy learn writes it",
            handlers.read_snapshot,
            parameters=[STUDY],
            refusals={**UNKNOWN, 409: "Contexts are still being prepared."},
        ),
        Operation(
            "GET",
            "/v1/studies/{study}/log",
            "read_log",
            "answers",
            "What was learned from, in order",
            handlers.read_log,
            parameters=[STUDY],
            response=Content(media=NDJSON),
            refusals=UNKNOWN,
        ),
    ]


def _live(streams: Streams) -> list[Operation]:
    return [
        Operation(
            "GET",
            "/v1/studies/{study}/live",
            "watch_study",
            "live",
            "The state of a study, whenever it changes",
            streams.of_study,
            "Server-sent events, at most one a second; each holds all that the page shows.",
            parameters=[STUDY],
            response=Content(media=EVENTS),
            refusals=UNKNOWN,
        ),
        Operation(
            "GET",
            "/v1/live",
            "watch_studies",
            "live",
            "The state of all studies, whenever one changes",
            streams.of_all,
            response=Content(media=EVENTS),
        ),
    ]
