"""The page in a real browser: by keyboard, in the dark, on a phone, and while things change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.support.live.real_service import serving_real
from tests.support.live.simulated_service import SimulatedService, serving_simulated, viewed
from tests.support.programs import find
from tests.support.reports import HOSTILE, SAMPLES, sample

pytestmark = [pytest.mark.plain, pytest.mark.needs("chromium")]

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
NOT_LOADED = "Failed to load resource"  # what a browser says of every answer of 400 and above
ACTIONS = ("small", "medium", "large")
PROMOTE = re.compile(
    r"^Promote: Estimated gain \+.*each with 95 %\)\. Next: let the policy .* A gain was first "
    r"certain on \d{1,2} [A-Z][a-z]+ \d{4}\.$"
)
WAITING = "Waiting: no reward is known yet."


class Service(Protocol):
    """What the tests ask of a service: where it is, studies, and production that acts."""

    url: str

    def add(self, name: str, actions: Sequence[str] = ACTIONS) -> object:
        """Create a study."""

    def play(self, name: str, decisions: int) -> None:
        """Let production decide until there are so many decisions in all."""


@pytest.fixture(params=["simulated"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A simulated service, which can be made to show anything; or the service itself."""
    if request.param == "real":
        with serving_real(tmp_path) as real:
            yield real
        return
    with serving_simulated(SimulatedService(interval=0.05)) as simulated:
        yield simulated


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find("chromium"), args=list(QUIET))
        yield browser
        browser.close()


Visit = Callable[..., Page]


@pytest.fixture
def visit(browser: Browser, service: Service) -> Iterator[Visit]:
    """A new tab; whatever it asks of another place, or complains about, fails the test."""
    complaints: list[str] = []
    asked: list[str] = []
    opened = []

    def visit(path: str, *, forgiven: str | None = None, **settings: Any) -> Page:
        context = browser.new_context(**settings)
        opened.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))

        def hear(kind: str, text: str) -> None:
            if kind in {"error", "warning"} and not (forgiven and text.startswith(forgiven)):
                complaints.append(text)

        page.on("console", lambda message: hear(message.type, message.text))
        page.goto(service.url + path, wait_until="domcontentloaded")
        return page

    yield visit
    for context in opened:
        context.close()
    assert complaints == []
    assert asked
    assert all(url.startswith(service.url + "/") for url in asked)


def live(page: Page) -> Page:
    expect(page.get_by_role("status")).to_have_text("Live")
    return page


def says(page: Page, words: str | re.Pattern[str]) -> None:
    expect(page.locator("#verdict")).to_have_text(words)


def tab_to(page: Page, name: str) -> None:
    """Go on with the tab key until what is called so has the focus."""
    called = "e => (e.labels?.[0]?.textContent ?? e.textContent).trim()"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator(":focus").evaluate(called) == name:
            return
    raise AssertionError(f"the keyboard does not reach {name}")


@pytest.mark.parametrize("service", ["simulated", "real"], indirect=True)
def test_a_study_is_created_by_keyboard_and_its_verdict_changes(
    visit: Visit, service: Service, tmp_path: Path
) -> None:
    page = live(visit("/"))
    expect(page.get_by_text("There is no study yet.")).to_be_visible()
    tab_to(page, "Name")
    page.keyboard.type("llm-router")
    tab_to(page, "Actions")
    page.keyboard.type("\n".join(ACTIONS))
    tab_to(page, "Create the study")
    page.keyboard.press("Enter")
    page.wait_for_url("**/studies/llm-router")
    live(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("llm-router")
    says(page, WAITING)
    expect(page.get_by_label("A command that sends an event")).to_contain_text(
        f"curl {service.url}/v1/studies/llm-router/events"
    )
    service.play("llm-router", 40)
    says(page, re.compile("^(No visible gain|Not enough data yet|No longer certain)"))
    expect(page.get_by_label("A command that sends an event")).to_be_hidden()
    service.play("llm-router", 3_000)
    says(page, PROMOTE)
    expect(page.locator("[data-fragment=events]")).to_contain_text("3,000")
    expect(page).to_have_title("✓ llm-router · understudy")
    picture = tmp_path / "promoted.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 50_000
    for words in ("Reward per round", "Gain over production per round, at least"):
        expect(page.get_by_text(words, exact=True)).to_be_visible()
    page.get_by_role("link", name="All studies").click()
    card = page.get_by_role("listitem")
    expect(card).to_contain_text("Promote: Estimated gain")
    expect(card).to_contain_text("3,000 decisions")


def test_what_is_wrong_with_a_study_is_said_beside_it(visit: Visit, service: Service) -> None:
    service.add("taken")
    page = live(visit("/", forgiven=NOT_LOADED))
    page.get_by_text("New study").click()
    page.get_by_label("Name").fill("taken")
    page.get_by_label("Actions").fill("only one")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Confidence, in percent").fill("100")
    page.get_by_text("More", exact=True).click()
    page.get_by_role("button", name="Create the study").click()
    expect(page.get_by_role("alert").filter(has_text="not created")).to_be_visible()
    for label in ("Name", "Actions"):
        field = page.get_by_label(label)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(re.compile(".{30}"))
    expect(page.get_by_label("Name")).to_be_focused()
    page.get_by_label("Name").fill("free")
    page.get_by_label("Actions").fill(f"one\n\n{'x' * 201}\n{'y' * 201}")
    page.get_by_role("button", name="Create the study").click()
    expect(page.get_by_label("Actions")).to_have_accessible_description(
        re.compile(r"action 2: it is longer .*; action 3: it is longer")
    )
    page.get_by_label("Actions").fill("one\n\n two \n")
    page.get_by_role("button", name="Create the study").click()
    confidence = page.get_by_label("Confidence, in percent")
    expect(confidence).to_be_focused()
    expect(page.get_by_label("Name")).not_to_have_attribute("aria-invalid", "true")
    confidence.fill("95")
    with page.expect_request("**/v1/studies") as asked:
        confidence.press("Enter")
    assert asked.value.post_data_json == {
        "name": "free",
        "actions": ["one", "two"],
        "behavior": "logged",
        "reward_range": [0, 1],
        "reward_wait": 3600,
        "confidence": 0.95,
    }
    page.wait_for_url("**/studies/free")
    expect(page.get_by_label("A command that sends an event")).to_contain_text('"action":"one"')


def test_words_that_stay_the_same_are_not_said_again(visit: Visit, service: Service) -> None:
    service.add("router")
    service.play("router", 3_000)
    page = live(visit("/studies/router"))
    says(page, PROMOTE)
    expect(page.locator("#loaded [aria-live=polite]")).to_have_text("Promote")
    page.evaluate(
        """() => {
          window.said = 0;
          const region = document.querySelector("#loaded [aria-live=polite]");
          const watch = { subtree: true, childList: true, characterData: true };
          new MutationObserver(() => { window.said += 1; }).observe(region, watch);
        }"""
    )
    service.play("router", 3_500)
    expect(page.locator("[data-fragment=events]")).to_contain_text("3,500")
    assert page.evaluate("window.said") == 0


def test_a_reader_of_a_table_is_not_disturbed(visit: Visit, service: Service) -> None:
    """Focus, scroll and selection are where they were, in the very same elements."""
    service.add("router", [f"action number {i}" for i in range(40)])
    service.play("router", 2_000)
    page = live(visit("/studies/router", viewport={"width": 600, "height": 700}))
    table = page.get_by_role("region", name="What the log says about each action")
    table.focus()
    table.evaluate(
        """e => {
          e.scrollTo(40, 200);
          window.kept = e;
          getSelection().selectAllChildren(e.querySelector("tbody tr:nth-child(3) th"));
        }"""
    )
    where = "[Math.round(kept.getBoundingClientRect().top), kept.scrollLeft, kept.scrollTop]"
    before = page.evaluate(where)
    assert before[1:] == [40, 200]
    service.play("router", 2_400)
    expect(page.locator("[data-fragment=events]")).to_contain_text("2,400")
    expect(table).to_be_focused()
    assert page.evaluate(where) == before
    assert table.evaluate("e => e === window.kept")
    assert page.evaluate("String(getSelection())").startswith("action number")


def test_what_is_changed_in_place_is_what_would_have_been_made_anew(visit: Visit) -> None:
    """From each sample to each other one, fragments grow, shrink and change their kind."""
    page = live(visit("/"))
    told = [viewed(sample(name), decisions=10, learned=10).page()["fragments"] for name in SAMPLES]
    different = page.evaluate(
        """async (states) => {
          const { setFragment } = await import("./assets/changes.js");
          const place = document.createElement("div");
          const anew = document.createElement("div");
          const different = [];
          for (const from of states) for (const to of states) for (const name of Object.keys(to)) {
            setFragment(place, from[name]);
            setFragment(place, to[name]);
            anew.innerHTML = to[name];
            if (!place.isEqualNode(anew)) different.push(name);
          }
          return different;
        }""",
        arg=[*told, dict.fromkeys(told[0], "")],
    )
    assert different == []


def test_all_is_seen_and_named_in_the_accessibility_tree(visit: Visit, service: Service) -> None:
    service.add("router")
    service.play("router", 3_000)
    page = live(visit("/studies/router"))
    says(page, PROMOTE)
    for role in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.get_by_role("navigation", name="Service")).to_be_visible()
    for name in ("Events", "Certificate", "Policy against production", "What this log can say"):
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
        expect(page.get_by_role("heading", name=name, level=2, exact=True)).to_be_visible()
    for name in ("The certificate over time", "The policy against production"):
        expect(page.get_by_role("img", name=name)).to_have_count(1)
    table = page.get_by_role("table", name="What the log says about each action")
    expect(table.get_by_role("columnheader")).to_have_count(8)
    expect(table.get_by_role("rowheader")).to_have_text(["large", "small", "medium"])
    snapshot = page.locator("body").aria_snapshot()
    assert 'heading "Promote: Estimated gain' in snapshot
    assert not re.search(r"- (button|link|textbox|region|table)(:|$)", snapshot, re.MULTILINE)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_the_experts_of_a_mixture_are_a_table_that_is_kept_up_to_date(
    visit: Visit, service: SimulatedService
) -> None:
    study = service.add("mixed")
    page = live(visit("/studies/mixed"))
    section = page.get_by_role("region", name="Experts", exact=True)
    expect(section).to_be_hidden()
    report = sample("contextual")
    for weight, shown in ((0.436, "44 %"), (0.25, "25 %")):
        experts = [replace(one, weight=weight) for one in report.experts]
        study.show(viewed(replace(report, experts=experts), decisions=10, learned=10))
        table = section.get_by_role("table", name="The experts of the mixture")
        expect(table.get_by_role("columnheader")).to_have_text(
            ["expert", "weight now", "estimated reward per row", "over production"]
        )
        expect(table.get_by_role("rowheader")).to_have_text([one.name for one in experts])
        expect(table.get_by_role("row").nth(1)).to_contain_text(shown)
    expect(section.get_by_role("img", name="The weights of the experts")).to_have_count(1)


def test_the_form_is_named_in_the_accessibility_tree(visit: Visit) -> None:
    page = live(visit("/"))
    form = page.get_by_role("form", name="New study")
    snapshot = form.aria_snapshot()
    for line in (
        'textbox "Name"',
        'textbox "Actions"',
        'radio "Every event says it" [checked]',
        'radio "Unknown"',
        'spinbutton "Lowest"',
        'spinbutton "Highest"',
        'combobox "Unit"',
        'button "Create the study"',
    ):
        assert line in snapshot
    expect(form.get_by_role("group", name="Rewards")).to_be_visible()


CONTRASTS = """() => {
  const channel = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) =>
    0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parts(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest(".unseen, noscript, title, desc")) continue;
    const style = getComputedStyle(element);
    const color = parts(element.closest("svg") ? style.fill : style.color);
    const [low, high] = [luminance(color), luminance(behind(element))].sort((a, b) => a - b);
    found.push([(high + 0.05) / (low + 0.05), texts.currentNode.data.trim()]);
  }
  return found;
}"""


@pytest.mark.parametrize("service", ["real"], indirect=True)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "dark")])
def test_the_operations_are_shown_by_swagger_ui_under_the_policy_of_contents(
    visit: Visit, service: Service, width: int, scheme: str
) -> None:
    """`visit` fails if it asks another place, or if the browser complains of the policy."""
    service.add("router")
    page = visit("/docs", viewport={"width": width, "height": 800}, color_scheme=scheme)
    operations = page.locator(".opblock")
    expect(operations).to_have_count(15)
    send = page.get_by_role("button", name="POST /v1/studies/{study}/events Send Event")
    send.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("It is on disk when it is answered.")).to_be_visible()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("textbox", name="study").fill("router")
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    color = page.get_by_role("heading", level=1).evaluate("e => getComputedStyle(e).color")
    assert (sum(map(int, re.findall(r"\d+", color)[:3])) > 400) == (scheme == "dark")
    page.get_by_role("link", name="All studies").click()
    live(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_can_be_read_in_light_and_dark(
    visit: Visit, service: SimulatedService, scheme: str
) -> None:
    service.add("router")
    service.add("new")
    service.play("router", 3_000)
    service.add("mixed").show(viewed(sample("contextual"), decisions=10, learned=10))
    brightness = []
    for path in ("/studies/router", "/studies/new", "/studies/mixed", "/"):
        page = live(visit(path, color_scheme=scheme))
        if path == "/":
            page.get_by_text("New study").click()
        found = page.evaluate(CONTRASTS)
        assert len(found) > 15
        assert [text for ratio, text in found if ratio < 4.5] == []
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness.append(sum(map(int, re.findall(r"\d+", color)[:3])))
    assert all((value < 200) == (scheme == "dark") for value in brightness)


@pytest.mark.parametrize("path", ["/", "/studies/router", "/studies/new", "/studies/mixed"])
def test_a_narrow_screen_needs_no_scrolling_sideways(
    visit: Visit, service: SimulatedService, path: str
) -> None:
    service.add("router", ["a" * 60, "a rather long name of an action", "c"])
    service.add("new-" + "n" * 60)
    service.add("new")
    service.add("mixed").show(viewed(sample("dirty"), decisions=10, learned=10))
    service.play("router", 3_000)
    page = live(visit(path, viewport={"width": 320, "height": 640}))
    if path == "/":
        page.get_by_text("New study").click()
        page.get_by_text("More", exact=True).click()
    width, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= room == 320


def test_labels_are_text_whatever_they_hold(visit: Visit, service: Service) -> None:
    labels = [text for text in HOSTILE if text and text.isprintable() and len(text) <= 80]
    assert labels[0].startswith("<script>")
    service.add("router", labels)
    page = live(visit("/studies/router"))
    expect(page.get_by_label("A command that sends an event")).to_contain_text(min(labels))
    service.play("router", 500)
    table = page.get_by_role("table", name="What the log says about each action")
    expect(table.get_by_role("rowheader")).to_have_count(len(labels))
    names = table.get_by_role("rowheader").all_text_contents()
    assert set(labels) == set(names)
    expect(page.locator("main script, main img, main [onerror]")).to_have_count(0)


def test_a_token_is_asked_for_kept_and_forgotten(visit: Visit, service: Service) -> None:
    service.add("router")
    page = visit("/docs", forgiven=NOT_LOADED)

    def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer right":
            route.continue_()
        else:
            route.fulfill(status=401, json={"error": "unauthorized", "message": "a token"})

    page.route("**/v1/**", guard)
    page.goto(service.url)
    box = page.get_by_label("Token", exact=True)
    expect(box).to_be_focused()
    box.fill("wrong")
    box.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This token is not accepted: type another.")
    box.fill("right")
    page.get_by_role("button", name="Go on").click()
    live(page)
    expect(box).to_be_hidden()
    page.get_by_role("link", name="router").click()
    live(page)
    expect(page.get_by_label("A command that sends an event")).to_contain_text("Bearer YOUR-TOKEN")
    page.get_by_role("button", name="Forget the token").click()
    expect(box).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_lost_connection_is_said_and_found_again(visit: Visit, service: Service) -> None:
    service.add("router")
    page = visit("/docs", forgiven=NOT_LOADED)
    page.route("**/live", lambda route: route.abort())
    page.goto(f"{service.url}/studies/router")
    status = page.get_by_role("status")
    expect(status).to_have_text("Connection lost, trying again")
    page.unroute("**/live")
    live(page)
    says(page, WAITING)


def test_a_tab_that_nobody_sees_leaves_its_connection_to_others(
    visit: Visit, service: Service
) -> None:
    """A browser has six of them for a service; whoever comes back sees the newest state."""
    service.add("router")
    page = live(visit("/studies/router"))
    hide = """hidden => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/live")):
        page.evaluate(hide, arg=True)
    service.play("router", 3_000)
    says(page, WAITING)
    expect(page.get_by_role("status")).to_have_text("Live")
    with page.expect_request("**/live"):
        page.evaluate(hide, arg=False)
    says(page, PROMOTE)


def test_a_study_is_archived_only_by_who_means_it(visit: Visit, service: Service) -> None:
    service.add("router")
    page = live(visit("/studies/router"))
    archive = page.get_by_role("button", name="Archive this study")
    dialog = page.get_by_role("dialog", name="Archive this study?")
    archive.focus()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(archive).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("archived", exact=True)).to_be_visible()
    expect(archive).to_be_hidden()
    page.get_by_role("link", name="All studies").click()
    expect(page.get_by_text("There is no study yet.")).to_be_visible()
    expect(page.get_by_role("link", name="router")).to_be_hidden()
    page.get_by_text("Archived", exact=True).click()
    expect(page.get_by_role("link", name="router")).to_be_visible()


def test_the_list_follows_and_tells_what_changed(visit: Visit, service: Service) -> None:
    service.add("first")
    page = live(visit("/"))
    expect(page.get_by_role("listitem")).to_have_count(1)
    expect(page.locator("#news")).to_be_empty()
    service.add("second")
    expect(page.get_by_role("listitem")).to_have_count(2)
    expect(page.locator("#news")).to_be_empty()
    service.play("first", 3_000)
    expect(page.locator("#news")).to_have_text(re.compile("^first: Promote: Estimated gain"))


def test_a_study_that_is_not_there_is_said_to_be_missing(visit: Visit) -> None:
    page = visit("/studies/nowhere", forgiven=NOT_LOADED)
    expect(page.get_by_role("heading", name="There is no study of this name")).to_be_visible()
    expect(page.locator("#loaded")).to_be_hidden()


def test_nothing_moves_for_who_does_not_want_it(visit: Visit) -> None:
    animation = "getComputedStyle(document.getElementById('connection'), '::before').animationName"
    assert live(visit("/")).evaluate(animation) == "breathe"
    assert live(visit("/", reduced_motion="reduce")).evaluate(animation) == "none"
