"""Markdown that shows a name as it is, whatever is in it: as the Prefect UI renders it, and as other programs do."""

import re
from collections.abc import Iterable, Sequence

from dpcore.reporting.plots import data_uri

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPED = frozenset("\\`*_[]#|~!$:@.")
"""What could begin emphasis, code, a link, a heading, a formula or a cell; the last three, an address that becomes a link by itself."""


def plain(text: object) -> str:
    r"""Write a text so that it neither becomes markup nor leaves the line or the cell that it is in.

    >>> print(plain("a|b <script> **x**\n# y"), plain("visit_date"))
    a\|b &lt;script&gt; \*\*x\*\* \# y visit_date
    """
    line = "".join(mark if mark.isprintable() else " " for mark in str(text))
    return "".join(_mark(line, place) for place in range(len(line)))


def mono(text: str) -> str:
    """Write a hash or a name of our own making, whose letters are to be told apart; anything else is written as it is."""
    return f"`{text}`" if re.fullmatch(r"[A-Za-z0-9-]+", text) else plain(text)


def code(text: str) -> str:
    """Write some lines of a program as a block, from which nothing that is in them leads out."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Write a table of cells that are Markdown; the columns named `right` hold numbers."""
    rules = ["---:" if head in right else "---" for head in heads]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rules, *rows])


def image(svg: str, words: str) -> str:
    """Put a plot into the page, with what it shows in words of our own."""
    return f"![{words}]({data_uri(svg)})"


def page(*parts: str) -> str:
    """Put the parts of a page below each other; those that are empty are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _mark(line: str, place: int) -> str:
    mark = line[place]
    if mark == "_" and line[place - 1 : place].isalnum() and line[place + 1 : place + 2].isalnum():
        return mark  # within a word it is never markup, and most columns have one
    return f"\\{mark}" if mark in _ESCAPED else _ENTITIES.get(mark, mark)
