from pathlib import Path

import pytest

from flows.server.settings import first_ui_only


def test_the_second_ui_has_no_place_to_be_served_from(tmp_path: Path) -> None:
    setting = first_ui_only(tmp_path)
    assert setting == {"PREFECT_SERVER_UI_STATIC_DIRECTORY": str(tmp_path / "ui")}
    assert not (tmp_path / "ui" / "v2").exists()
    with pytest.raises(FileExistsError):  # what the server then meets, and takes for a reason not to offer that UI
        (tmp_path / "ui" / "v2").mkdir(parents=True)


def test_it_stays_so_and_what_an_earlier_server_has_put_there_goes(tmp_path: Path) -> None:
    old = tmp_path / "ui" / "v2"
    old.mkdir(parents=True)
    (old / "index.html").touch()
    assert first_ui_only(tmp_path) == first_ui_only(tmp_path)
    assert not old.exists()
