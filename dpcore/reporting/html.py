"""The elements of pages in HTML. Every text that is passed here is escaped; what has markup is of the type Markup."""

from collections.abc import Iterable, Sequence
from html import escape

from dpcore.reporting.plots import data_uri
from dpcore.reporting.ratings import Rating

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def markup(words: str) -> Markup:
    """Return a text as HTML, escaped unless it is HTML already. No line ends before a percent sign.

    >>> markup("a < b"), markup(Markup("<b>a</b>")), markup("5 %")
    ('a &lt; b', '<b>a</b>', '5&nbsp;%')
    """
    return words if isinstance(words, Markup) else Markup(escape(words).replace(" %", "&nbsp;%"))


def joined(*parts: str) -> Markup:
    """Join texts and HTML to HTML."""
    return Markup("".join(map(markup, parts)))


def strong(words: str) -> Markup:
    """Return important words."""
    return Markup(f"<strong>{markup(words)}</strong>")


def rated(rating: Rating) -> Markup:
    """Return a rating with its symbol. The class is its colour."""
    return Markup(f"<span class={rating}>{rating.symbol} {rating}</span>")


def document(
    title: str, parts: Iterable[str], *, style: str, head: Sequence[str] = (), above: Sequence[str] = ()
) -> str:
    """Return a whole page, which loads nothing and runs no script.

    Args:
        title: Its title.
        parts: Its elements.
        style: Its style sheet.
        head: More elements of its head.
        above: What stands above its main part.
    """
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            *head,
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *above,
            "<main>",
            *parts,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def heading(words: str, *, level: int = 2) -> Markup:
    """Return the heading of a section, or that of the page."""
    return Markup(f"<h{level}>{markup(words)}</h{level}>")


def paragraph(words: str, *, kind: str = "") -> Markup:
    """Return a paragraph."""
    kinds = f" class={kind}" if kind else ""
    return Markup(f"<p{kinds}>{markup(words)}</p>")


def bullets(items: Iterable[str]) -> Markup:
    """Return a list."""
    return Markup(f"<ul>{''.join(f'<li>{markup(item)}</li>' for item in items)}</ul>")


def code(*lines: str) -> Markup:
    """Return lines of a program. They scroll, with the keyboard too."""
    return Markup(f'<pre tabindex="0"><code>{escape(chr(10).join(lines))}</code></pre>')


def image(svg: str, words: str) -> Markup:
    """Return a drawing, with words for readers who cannot see it."""
    return Markup(f'<img src="{data_uri(svg)}" alt="{escape(words, quote=True)}">')


def picture(svg: str, words: str, *, caption: str) -> Markup:
    """Return a drawing with a caption."""
    return Markup(f"<figure><figcaption>{markup(caption)}</figcaption>{image(svg, words)}</figure>")


def scrolling(inside: Markup, *, about: str) -> Markup:
    """Return something wide in a box that scrolls, with the keyboard too."""
    return Markup(f'<div class=wide tabindex="0" role="group" aria-label="{escape(about, quote=True)}">{inside}</div>')


def folded(summary: str, inside: Iterable[str]) -> Markup:
    """Return something that is shown when its summary is clicked."""
    lines = "\n".join(inside)
    return Markup(f"<details><summary>{markup(summary)}</summary>\n{lines}\n</details>")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> Markup:
    """Return a table in a box that scrolls. The first cell of each row is its heading."""
    kinds = [" class=number" if head in right else " class=rating" if head == "rating" else "" for head in heads]
    head = "".join(f'<th scope="col"{kind}>{markup(name)}</th>' for name, kind in zip(heads, kinds, strict=True))
    lines = ["<table>", f"<caption>{markup(caption)}</caption>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for first, *others in rows:
        cells = [f"<td{kind}>{markup(cell)}</td>" for cell, kind in zip(others, kinds[1:], strict=True)]
        lines.append(f'<tr><th scope="row">{markup(first)}</th>{"".join(cells)}</tr>')
    return scrolling(Markup("\n".join([*lines, "</tbody></table>"])), about=caption)
