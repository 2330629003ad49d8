"""The list of verbs: it is complete, and printed without loading what the verbs need."""

import subprocess
import sys

import pytest

from docs.programs.cli_page import verbs
from dpcore.cli.main import parser
from dpcore.cli.verbs import VERBS

HEAVY = ("numpy", "pyarrow", "pydantic", "pandas", "prefect")


def loaded_by(statement: str) -> set[str]:
    """Return which large packages a new process has loaded after a statement."""
    program = f"import sys\n{statement}\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_added_by_its_module_with_its_line(verb: str) -> None:
    one, about = verbs(parser({}, loaded=[verb]))[verb]
    assert VERBS[verb].module.startswith("dpcore.cli.")
    assert about == VERBS[verb].about
    assert "--json" in one.format_help() or verbs(one)


def test_the_list_of_verbs_loads_no_large_package() -> None:
    listing = "from dpcore.cli.main import parser; print(parser({}, loaded=[]).format_help())"
    assert loaded_by(listing) == set()
    assert "numpy" in loaded_by(listing.replace("loaded=[]", "loaded=['plan']"))  # the control
