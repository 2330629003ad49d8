"""Convert a notebook to a page: text as it is, code in blocks. The notebook stores no outputs, so none are shown."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def page(path: Path) -> str:
    """Return a notebook as Markdown."""
    return "\n\n".join(_shown(cell) for cell in cells(path)) + "\n"


def cells(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cells of a notebook that are not empty."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    yield from (cell for cell in notebook["cells"] if "".join(cell["source"]).strip())


def _shown(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"]).rstrip()
    return f"```python\n{text}\n```" if cell["cell_type"] == "code" else text
