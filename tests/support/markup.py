"""HTML as a tree, for tests that look at pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

__all__ = ["Element", "tree"]

VOID = {"meta", "br", "hr", "img", "link", "input", "source", "base"}
CLOSED = {"circle", "line", "path", "rect"}  # of SVG: written with a slash


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parts: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    def every(self, tag: str) -> list[Element]:
        inner = [part for part in self.parts if isinstance(part, Element)]
        own = [part for part in inner if tag in {part.tag, "*"}]
        return own + [found for part in inner for found in part.every(tag)]


class Strict(HTMLParser):
    """A tree, if every element is closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("root", {})
        self.open = [self.root]
        self.feed(page)
        self.close()
        assert self.open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} repeats an attribute"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].parts.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in CLOSED
        self.open[-1].parts.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)


def tree(page: str) -> Element:
    return Strict(page).root
