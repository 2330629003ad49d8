"""Find what a browser would load from another host, in the files of a built site."""

import re
from html.parser import HTMLParser
from pathlib import Path

OUTSIDE = re.compile(r"(?:https?:|wss?:)?//", flags=re.IGNORECASE)
LOADED = {"src", "srcset", "poster", "data", "background", "formaction", "action"}
"""Attributes whose address is loaded, or sent to, whatever element has them."""
LINKS = {"a", "area"}
"""Elements whose `href` is followed only when somebody clicks."""
FOR_ROBOTS = {"canonical", "alternate", "license", "author", "next", "prev"}
"""Kinds of `<link>` that no browser loads."""
IN_CSS = re.compile(
    r"""url\(\s*["']?\s*((?:https?:)?//[^"')]+)|@import\s+["']((?:https?:)?//[^"']+)""", flags=re.IGNORECASE
)
IN_SCRIPT = re.compile(r"""["'`]((?:https?|wss?)://[^"'`]*)""", flags=re.IGNORECASE)
NAMESPACES = ("http://www.w3.org/",)
"""Names that look like addresses: nobody loads them."""


def loads_in(path: Path) -> list[str]:
    """Return the addresses at other hosts that a file makes a browser load."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".html":
        return in_html(text)
    if path.suffix in {".css", ".svg"}:
        return in_css(text) + (in_html(text) if path.suffix == ".svg" else [])
    return in_script(text) if path.suffix == ".js" else []


def in_html(text: str) -> list[str]:
    """Return what the elements, styles and scripts of a page load.

    >>> in_html('<a href="https://x.example">x</a><img src="a.png"><img src="//x.example/a.png">')
    ['//x.example/a.png']
    """
    found = _Elements()
    found.feed(text)
    return found.loads


def in_css(text: str) -> list[str]:
    """Return what a style sheet loads."""
    return [one or other for one, other in IN_CSS.findall(text)]


def in_script(text: str) -> list[str]:
    """Return the addresses that stand in a script as texts, and that it could thus load."""
    return [found for found in IN_SCRIPT.findall(text) if not found.startswith(NAMESPACES)]


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        given = {name: value or "" for name, value in attrs}
        self.loads += in_css(given.get("style", ""))
        for name, value in given.items():
            loaded = name in LOADED or (name in {"href", "xlink:href"} and tag not in LINKS)
            if tag == "link" and set(given.get("rel", "").split()) <= FOR_ROBOTS:
                loaded = False
            if loaded:
                self.loads += [part.split()[0] for part in value.split(",") if OUTSIDE.match(part.strip())]
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.loads += re.findall(r"url=\s*((?:https?:)?//\S+)", given.get("content", ""), flags=re.IGNORECASE)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.loads += in_script(data)
        elif self._inside == "style":
            self.loads += in_css(data)
