"""The page of the service: HTML without any data, its scripts and its styles, all from here."""

from __future__ import annotations

import hashlib
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from understudy.report.render import environment

NO_CACHE = {"cache-control": "no-cache"}  # asked for again each time, and sent only if it changed
TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}


class File(NamedTuple):
    """What is sent, and what it is; the tag is another for another content."""

    content: bytes
    media_type: str
    tag: str

    @staticmethod
    def of(name: str, content: bytes) -> File:
        """A file of that name, whose ending says what it is."""
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        return File(content, TYPES[name.rpartition(".")[2]], tag)

    def answer(self, request: Request) -> Response:
        """The file, or only that it is the one that the browser has."""
        headers = {**NO_CACHE, "etag": self.tag}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def routes() -> list[Route]:
    """The page of all studies, that of one, that of the API, and the files that they load.

    >>> [route.path for route in routes()]
    ['/', '/studies/{study}', '/docs', '/assets/{name}']
    """
    pages = {"/": "overview.html", "/studies/{study}": "study.html", "/docs": "docs.html"}
    return [
        *(Route(path, partial(_send_page, template)) for path, template in pages.items()),
        Route("/assets/{name}", _asset),
    ]


async def _send_page(template: str, request: Request) -> Response:
    root = "../" if "study" in request.path_params else "./"
    return _page(template, root).answer(request)


async def _asset(request: Request) -> Response:
    found = _assets().get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("there is no such asset", status_code=404, headers=NO_CACHE)
    return found.answer(request)


@cache
def _page(template: str, root: str) -> File:
    """Render a page, the same for all requests; `root` is the path to the root of the service."""
    text = environment("understudy.live.web").get_template(template).render(root=root)
    return File.of(template, text.encode())


@cache
def _assets() -> dict[str, File]:
    """All files of the folder, the style of reports, and Swagger UI."""
    swagger = files("fastapi_offline") / "static"
    found = [
        *(files("understudy.live.web") / "assets").iterdir(),
        files("understudy.report") / "templates" / "report.css",
        *(swagger / name for name in ("swagger-ui-bundle.js", "swagger-ui.css")),
    ]
    return {file.name: File.of(file.name, file.read_bytes()) for file in found}
