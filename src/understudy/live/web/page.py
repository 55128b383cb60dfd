"""The page of the service: HTML without any data, its scripts and its styles, all from here.

docs/decisions/0004-static-files.md says why this is not Starlette's `StaticFiles`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from understudy.report.render import environment

NO_CACHE = "no-cache"  # asked for again each time, and sent only if it changed
TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES = {  # and the path from each to the root of the service
    "/": ("overview.html", "./"),
    "/studies/{study}": ("study.html", "../"),
    "/docs": ("docs.html", "./"),
}


@cache
def routes() -> tuple[Route, ...]:
    """The page of all studies, that of one, that of the API, and the files that they load.

    >>> [route.path for route in routes()][:3]
    ['/', '/studies/{study}', '/docs']
    """
    templates = environment("understudy.live.web")
    swagger = files("fastapi_offline") / "static"
    assets = [
        *(files("understudy.live.web") / "assets").iterdir(),
        files("understudy.report") / "templates" / "report.css",
        *(swagger / name for name in ("swagger-ui-bundle.js", "swagger-ui.css")),
    ]
    return (
        *(
            Route(path, _endpoint(name, templates.get_template(name).render(root=root).encode()))
            for path, (name, root) in PAGES.items()
        ),
        *(
            Route(f"/assets/{file.name}", _endpoint(file.name, file.read_bytes()))
            for file in assets
        ),
    )


def _endpoint(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    """Send a file, or only say that the browser has it: the ETag is a hash of the content."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"cache-control": NO_CACHE, "etag": tag}
    media_type = TYPES[name.rpartition(".")[2]]

    async def send(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if tag in re.findall(r'"[^"]*"', known):  # a proxy that compresses makes it W/"…"
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return send
