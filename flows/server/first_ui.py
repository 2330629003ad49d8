"""Serve only the first of Prefect's two UIs: pages of the second call an analytics host, and no setting prevents that.

The setting `PREFECT_SERVER_UI_V2_ENABLED` only chooses which of the two a browser sees first; the other stays one click away.
"""

import shutil
from pathlib import Path


def first_ui_only(home: Path) -> dict[str, str]:
    """Prepare a server's folder, and return the setting with which it serves and offers the first UI only.

    The server copies the files of each UI into a folder before it serves them. In place of the second UI's folder we put a dangling
    link. The server then logs that this UI is not available, and redirects requests for it to the first.
    """
    pages = home / "ui"
    pages.mkdir(parents=True, exist_ok=True)
    second = pages / "v2"
    if not second.is_symlink():
        shutil.rmtree(second, ignore_errors=True)
        second.symlink_to("not-served")
    return {"PREFECT_SERVER_UI_STATIC_DIRECTORY": str(pages)}
