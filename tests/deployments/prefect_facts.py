"""Ask Prefect, in a process of its own: which settings it knows, and what it thinks of base job templates.

On standard input: a list of templates as JSON. On standard output: the names of all settings, Prefect's own template for Kubernetes,
and for each of ours the words with which it is refused, or null. Prefect is imported only when this runs as a program.
"""

import json
import sys
from pathlib import Path
from typing import Any

OWN_TEMPLATES = Path("api", "collections_data", "views", "aggregate-worker-metadata.json")


def facts(templates: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all that was asked."""
    import prefect.server  # noqa: PLC0415  see above
    from prefect.settings import Settings  # noqa: PLC0415
    from prefect.settings.legacy import _get_settings_fields  # noqa: PLC0415

    own = json.loads((Path(prefect.server.__file__).parent / OWN_TEMPLATES).read_text(encoding="utf-8"))
    return {
        "settings": [name for name in _get_settings_fields(Settings) if name.isupper()],
        "kubernetes": own["prefect-kubernetes"]["kubernetes"]["default_base_job_configuration"],
        "refusals": [refusal(template) for template in templates],
    }


def refusal(template: dict[str, Any]) -> str | None:
    """Return why a work pool with this template can't be made, or None."""
    from prefect.server.schemas.actions import WorkPoolCreate  # noqa: PLC0415  see above

    try:
        WorkPoolCreate(name="dpflow", type="kubernetes", base_job_template=template)
    except ValueError as error:
        return str(error)
    return None


if __name__ == "__main__":
    json.dump(facts(json.load(sys.stdin)), sys.stdout)
