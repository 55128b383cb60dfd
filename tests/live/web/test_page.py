"""The shell of the page: it holds no data, loads nothing from outside, and can be used by all."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from tests.support.live.simulated_service import in_middleware, viewed
from tests.support.markup import Element, tree
from understudy.live.web import page

pytestmark = pytest.mark.plain

LIVE = Path(page.__file__).parent
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in LIVE.glob("assets/*.js")}
STYLE = (LIVE / "assets" / "live.css").read_text(encoding="utf-8")
PAGES = {"/": "overview.js", "/studies/llm-router": "study.js"}
NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'


def get(path: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(in_middleware(Starlette(routes=page.routes())))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def loaded(path: str) -> Element:
    answer = get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return tree(answer.text)


def imported(script: str) -> set[str]:
    """A script and all that it imports."""
    found = {script}
    for name in re.findall(r'from "\./([a-z]+\.js)"', SCRIPTS[script]):
        found |= imported(name)
    return found


def assert_safe(answer: httpx.Response) -> None:
    policy = answer.headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_only_what_the_service_has(path: str) -> None:
    root = loaded(path)
    links = [link.attributes for link in root.every("link")]
    assert [link["rel"] for link in links] == ["icon", "stylesheet", "stylesheet"]
    sources = [link["href"] for link in links]
    sources += [script.attributes["src"] for script in root.every("script")]
    sources += [f"assets/{name}" for name in imported(PAGES[path])]
    for source in sources:
        address = httpx.URL(f"http://localhost{path}").join(source)
        if source.startswith("assets/"):
            address = httpx.URL(f"http://localhost/{source}")
        assert address.host == "localhost"
        answer = get(address.path)
        assert answer.status_code == 200, source
        assert_safe(answer)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_the_same_for_everybody_and_sent_once(path: str) -> None:
    first = get(path)
    assert_safe(first)
    assert "llm-router" not in first.text.replace("“llm-router”", "")
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"another", {tag}'):
        again = get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert_safe(again)
    other = get(path, headers={"if-none-match": '"another"'})
    assert (other.status_code, other.content) == (200, first.content)


def test_all_assets_are_there_with_tags_of_their_own() -> None:
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    names = [path.name for path in (LIVE / "assets").iterdir()] + ["report.css"]
    assert {"live.css", "icon.svg", "service.js"} < set(names)
    tags = set()
    for name in names:
        answer = get(f"/assets/{name}")
        assert answer.headers["content-type"].partition(";")[0] == kinds[Path(name).suffix]
        tags.add(answer.headers["etag"])
    assert len(tags) == len(names)


@pytest.mark.parametrize("name", ["nothing.js", "..%2fpage.py", "%2e%2e%2f%2e%2e%2ferrors.py", "."])
def test_nothing_else_is_an_asset(name: str) -> None:
    assert get(f"/assets/{name}").status_code == 404


@pytest.mark.parametrize("path", PAGES)
def test_no_page_carries_a_script_a_style_or_an_address_from_outside(path: str) -> None:
    for element in loaded(path).every("*"):
        assert element.tag != "style"
        assert element.tag != "script" or not element.text
        for name, value in element.attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            assert name not in {"src", "href"} or re.fullmatch(r"\.\.?/[a-z./]*|#content", value)


def test_no_asset_names_another_place() -> None:
    files = [path.read_text(encoding="utf-8") for path in LIVE.glob("assets/*")]
    for text in [*files, *(path.read_text(encoding="utf-8") for path in LIVE.glob("templates/*"))]:
        assert not re.search(r"\b[a-z]+://|url\(|@import", text.replace(NAMESPACE, ""))


def test_scripts_write_text_and_only_what_the_service_made_as_html() -> None:
    writing = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\("
    )
    found = {name: writing.findall(text) for name, text in SCRIPTS.items()}
    assert {name: words for name, words in found.items() if words} == {"changes.js": ["innerHTML"]}
    assert not re.search(r"\b(confirm|alert|prompt)\(", str(SCRIPTS))


@pytest.mark.parametrize(("path", "script"), PAGES.items())
def test_what_scripts_look_for_is_on_the_page(path: str, script: str) -> None:
    ids = {e.attributes["id"] for e in loaded(path).every("*") if "id" in e.attributes}
    for name in imported(script):
        wanted = re.findall(r'(?:getElementById|part)\("([a-z-]+)"\)', SCRIPTS[name])
        assert set(wanted) <= ids, name


def test_there_is_a_place_for_every_fragment() -> None:
    root = loaded("/studies/x")
    places = [
        e.attributes["data-fragment"] for e in root.every("div") if "data-fragment" in e.attributes
    ]
    told = viewed().page()["fragments"]
    assert Counter(places) == Counter(told.keys())


def test_the_form_asks_for_what_a_study_is_created_with() -> None:
    fields = [e.attributes.get("data-field") for e in loaded("/").every("*")]
    assert [field for field in fields if field] == [
        "name",
        "actions",
        "behavior",
        "reward_range",
        "reward_wait",
        "default_reward",
        "confidence",
    ]
    keys = SCRIPTS["create.js"].partition("function asked")[2].partition("\n}")[0]
    for field in filter(None, fields):
        assert re.search(rf"\b{field}\b", keys)


@pytest.mark.parametrize("path", PAGES)
def test_headings_go_down_one_level_at_a_time(path: str) -> None:
    levels = [int(tag[1]) for tag in tags(loaded(path)) if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def tags(element: Element) -> Iterator[str]:
    """Of all elements, in the order of the page."""
    yield element.tag
    for part in element.parts:
        if isinstance(part, Element):
            yield from tags(part)


@pytest.mark.parametrize("path", PAGES)
def test_what_refers_to_a_name_finds_it(path: str) -> None:
    root = loaded(path)
    ids = [e.attributes["id"] for e in root.every("*") if "id" in e.attributes]
    assert len(set(ids)) == len(ids)
    for element in root.every("*"):
        for name in ("for", "aria-labelledby", "aria-describedby"):
            assert set(element.attributes.get(name, "").split()) <= set(ids)
    labelled = {label.attributes["for"] for label in root.every("label")}
    for tag in ("input", "textarea", "select"):
        assert {e.attributes["id"] for e in root.every(tag)} <= labelled
    for button in root.every("button"):
        assert button.text.strip()
        assert button.attributes["type"] in {"button", "submit"}


@pytest.mark.parametrize("path", PAGES)
def test_landmarks_let_people_jump(path: str) -> None:
    root = loaded(path)
    assert root.every("html")[0].attributes["lang"] == "en"
    for tag in ("header", "main", "footer"):
        assert len(root.every(tag)) == 1
    first = root.every("body")[0].every("a")[0]
    assert first.attributes == {"class": "skip", "href": "#content"}
    assert root.every("main")[0].attributes["id"] == "content"
    statuses = [e.attributes["id"] for e in root.every("*") if e.attributes.get("role") == "status"]
    assert statuses == ["connection"]


def test_motion_can_be_refused() -> None:
    assert "@media (prefers-reduced-motion: reduce)" in STYLE
    moving = re.findall(r"(?:animation|transition):", STYLE.partition("prefers-reduced-motion")[0])
    assert moving == ["animation:"]
