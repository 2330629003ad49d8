"""The elements of pages in Markdown, which show any name verbatim, in the Prefect UI and in other renderers."""

import re
from collections.abc import Iterable, Sequence

from dpcore.reporting.plots import data_uri

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPED = frozenset("\\`*_[]#|~!$:@.")
"""Characters that could start emphasis, code, a link, a heading, a formula or a cell. The last three could start an autolink."""


def plain(text: object) -> str:
    r"""Escape a text so that it neither becomes markup nor leaves its line or cell.

    >>> print(plain("a|b <script> **x**\n# y"), plain("visit_date"))
    a\|b &lt;script&gt; \*\*x\*\* \# y visit_date
    """
    line = "".join(mark if mark.isprintable() else " " for mark in str(text))
    return "".join(_mark(line, place) for place in range(len(line)))


def mono(text: str) -> str:
    """Format a hash or a name that we made in a monospaced font. Any other text is escaped as by `plain`."""
    return f"`{text}`" if re.fullmatch(r"[A-Za-z0-9-]+", text) else plain(text)


def code(text: str) -> str:
    """Format lines of a program as a fenced block. The fence is longer than any run of backticks inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Format a table whose cells are Markdown. The columns in `right` are aligned right, for numbers."""
    rules = ["---:" if head in right else "---" for head in heads]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, rules, *rows])


def facts(pairs: Iterable[Sequence[str]]) -> str:
    """Format names with what is said of them as a list. Its lines wrap, while the UI cuts off a table that is wider than the page.

    >>> print(facts([("unit", "person"), ("delta", "1e-09")]))
    - unit: **person**
    - delta: **1e-09**
    """
    return "\n".join(f"- {name}: **{text}**" for name, text in pairs)


def image(svg: str, words: str) -> str:
    """Embed a plot, with `words` as its alternative text. The words are ours and need no escaping."""
    return f"![{words}]({data_uri(svg)})"


def page(*parts: str) -> str:
    """Join the parts of a page, leaving out empty ones."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _mark(line: str, place: int) -> str:
    mark, before, after = line[place], line[place - 1 : place], line[place + 1 : place + 2]
    if mark == "_" and before.isalnum() and after.isalnum():
        return mark  # never markup inside a word, and most column names have one
    if mark == "." and (not after.isalnum() or (before.isdigit() and after.isdigit())):
        return mark  # the end of a sentence, or a number
    return f"\\{mark}" if mark in _ESCAPED else _ENTITIES.get(mark, mark)
