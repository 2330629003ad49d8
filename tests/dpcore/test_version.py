import re
import tomllib
from pathlib import Path

from dpcore.version import DISTRIBUTION, installed_version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BY_COMMAND_NAME = re.compile(r"""version\(["']dpflow["']\)""")


def asking_for_the_command(files: list[Path]) -> list[Path]:
    """The files that ask for the version of a distribution that is somebody else's."""
    return [path for path in files if BY_COMMAND_NAME.search(path.read_text(encoding="utf-8"))]


def test_the_distribution_is_the_one_of_the_project_and_the_command_keeps_its_name() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert installed_version() == PROJECT["version"]
    assert list(PROJECT["scripts"]) == ["dpflow"]


def test_nothing_asks_for_the_version_of_somebody_elses_distribution(tmp_path: Path) -> None:
    product = [path for package in ("dpcore", "flows") for path in (ROOT / package).rglob("*.py")]
    assert len(product) > 100
    assert asking_for_the_command(product) == []
    planted = tmp_path / "planted.py"
    planted.write_text('version("dpflow")', encoding="utf-8")
    assert asking_for_the_command([planted]) == [planted]
