"""Write the JSON Schema of manifests for people who read releases without dpflow: `python -m docs.programs.manifest_schema`."""

import json
from pathlib import Path

from dpcore.release.manifest import manifest_schema

PATH = Path(__file__).parent.parent / "reference" / "manifest.schema.json"


def text() -> str:
    """Return the content of the file."""
    return json.dumps(manifest_schema(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
