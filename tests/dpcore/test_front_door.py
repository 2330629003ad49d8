"""The front door: every name leads to its module, and is loaded only when it is used."""

import subprocess
import sys

import pytest

import dpcore


def test_every_name_of_the_front_door_is_there() -> None:
    assert sorted(dpcore.__all__) == sorted(dpcore._MODULES)
    for name in dpcore.__all__:
        assert getattr(dpcore, name).__module__.startswith(dpcore._MODULES[name])
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dpcore.nothing  # noqa: B018


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'pandas', 'pyarrow', 'pydantic', 'sqlalchemy', 'prefect'}"
    asked = f"import sys, dpcore; print(sorted(sys.modules.keys() & {heavy}))"
    for more, loaded in (("", "[]"), ("; dpcore.load_spec", "['numpy', 'pyarrow', 'pydantic']")):
        told = subprocess.run(
            [sys.executable, "-c", asked.replace("; print", f"{more}; print")],
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.strip() == loaded
