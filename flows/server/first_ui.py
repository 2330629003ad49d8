"""Only the first of Prefect's two UIs: the pages of the second call an analytics host, and no setting keeps them from it.

The setting `PREFECT_SERVER_UI_V2_ENABLED` merely chooses which of the two a browser sees first; the other stays a click away.
"""

import shutil
from pathlib import Path


def first_ui_only(home: Path) -> dict[str, str]:
    """Prepare a server's folder, and return the setting with which it serves and offers the first UI alone.

    The server copies the files of each UI into a folder before it serves them. Where it would put the second one's there is a
    link that leads nowhere: it notes in its log that this UI is not available, and sends whoever asks for it to the first.
    """
    pages = home / "ui"
    pages.mkdir(parents=True, exist_ok=True)
    second = pages / "v2"
    if not second.is_symlink():
        shutil.rmtree(second, ignore_errors=True)
        second.symlink_to("not-served")
    return {"PREFECT_SERVER_UI_STATIC_DIRECTORY": str(pages)}
