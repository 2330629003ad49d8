"""How well colours can be told apart: by their contrast, and by people who see fewer of them."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

Colour = tuple[float, float, float]

# Linear RGB as it is seen without one kind of cone: Vienot, Brettel and Mollon 1999, and for blue Brettel, Vienot and Mollon 1997.
SEEN_WITHOUT = {
    "red": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "green": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
    "blue": ((1.0, 0.14461, -0.14461), (0.0, 0.85924, 0.14076), (0.0, 0.85924, 0.14076)),
}


def contrast(first: str, second: str) -> float:
    """Return the ratio that the Web Content Accessibility Guidelines define, from 1 to 21."""
    light, dark = sorted((_luminance(_linear(colour)) for colour in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def difference_without(cone: str, first: str, second: str) -> float:
    """Return the difference of two colours in CIELAB as they are seen without a kind of cone."""
    one, other = (_lab(_seen(_linear(colour), cone)) for colour in (first, second))
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5


def colours_of(style: str, *, dark: bool) -> dict[str, str]:
    """Return the CSS variables of a style as they are in light or dark surroundings."""
    light_rules, _, dark_rules = style.partition("prefers-color-scheme:dark")
    found = dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", light_rules))
    return found | (dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", dark_rules)) if dark else {})


def painted(svg: str, *, dark: bool) -> Iterator[tuple[str, str, str]]:
    """Go through what a drawing paints: each element's kind, its class and one colour that it has by its style."""
    root = ET.fromstring(svg)  # noqa: S314  our own text
    style = next(element.text or "" for element in root.iter() if element.tag.endswith("style"))
    colours = colours_of(style, dark=dark)
    rules = {
        selector.strip(): re.findall(r"(?:fill|stroke):var\(--([a-z-]+)\)", body)
        for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", style)
        for selector in selectors.split(",")
    }
    for element in root.iter():
        kind, classes = element.tag.rpartition("}")[2], element.get("class", "").split()
        if kind in {"text", "rect", "circle", "line", "polyline"}:
            names = [name for each in classes for name in rules.get(f".{each}", [])] or rules.get(kind, [])
            for name in names:
                yield kind, " ".join(classes), colours[name]


def _linear(colour: str) -> Colour:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return red, green, blue


def _luminance(colour: Colour) -> float:
    red, green, blue = colour
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _seen(colour: Colour, cone: str) -> Colour:
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, colour, strict=True)))) for row in SEEN_WITHOUT[cone]
    )
    return red, green, blue


def _lab(colour: Colour) -> Colour:
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = _luminance(colour)
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)
