"""The search of the tree for other random sources: `make lint` finds one wherever it is planted on the private side.

Ruff refuses the names of all sources (TID251, pyproject.toml), however they are imported, and each exception says why. What goes round names is
looked for here: methods of tables that draw, imports by text, the kernel's own files, and a source put in the place of ours.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
SOURCES = {
    "random",
    "secrets",
    "numpy.random",
    "os.urandom",
    "os.getrandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "ssl.RAND_bytes",
    "pyarrow.compute.random",
    "opendp",
    "scipy",
}
EXEMPT = {
    "dpcore/mechanisms/sampling/entropy.py": {"os.urandom"},  # the one source of noise
    "dpcore/tables/ingest/draws.py": {"os.urandom"},  # which rows of a person are kept
    "dpcore/tables/ingest/fingerprint.py": {"os.urandom", "secrets"},  # the steward's key, and a draft's name
    "dpcore/tables/cluster/engine.py": {"secrets"},  # names of pieces of work
    "dpcore/budget/identity.py": {"uuid.uuid4"},  # the name of a step outside any flow run
    "dpcore/curator/ask.py": {"uuid.uuid4"},  # a question's name
    "dpcore/starter/charged_look.py": {"uuid.uuid4"},  # a run's name
    "dpcore/comparison/baselines.py": {"numpy.random"},  # baselines by a fixed seed, which protect nothing
    "dpcore/comparison/figures.py": {"uuid.uuid4"},  # the name of a run that buys figures
    "dpcore/audit/planted.py": {"numpy.random"},  # deliberately wrong, for the audit to catch
    "dpcore/session/analysts.py": {"secrets"},  # the tokens of analysts
    "dpcore/session/knowledge.py": {"numpy.random"},  # replicates of the public model, by a public seed
    "dpcore/session/session.py": {"uuid.uuid4"},  # a session's name
    "dpcore/textbook/online/opening.py": {"uuid.uuid4"},  # a run's name
    "dpcore/runs/steps.py": {"uuid.uuid4"},  # a run's name
    "dpcore/runs/losses.py": {"uuid.uuid4"},  # a run's name
}
"""All that the private side may take from elsewhere, file by file."""

DRAWING = {
    "random",
    "rand",
    "sample",
    "shuffle",
    "permutation",
    "rvs",
    "default_rng",
    "getrandbits",
    "randbytes",
    "token_bytes",
    "SystemRandom",
}
KERNEL = ("/dev/random", "/dev/urandom", "/dev/hwrng")
HARMLESS = {
    ("dpcore/tables/cluster/engine.py", "shuffle"),  # dask's: brings the rows of a person together
    ("dpcore/comparison/baselines.py", "default_rng"),  # the fixed seed
    ("dpcore/comparison/baselines.py", "random"),  # likewise
    ("dpcore/audit/planted.py", "default_rng"),  # deliberately wrong
    ("dpcore/audit/planted.py", "random"),  # likewise
    ("dpcore/audit/streams.py", "replaced"),  # so that the audit can watch, in a process that does nothing else
    ("dpcore/session/knowledge.py", "default_rng"),  # the public seed of the replicates
    ("dpcore/session/knowledge.py", "random"),  # likewise
    ("dpcore/runs/steps.py", "sample"),  # our own step, which draws rows from the public model
    ("dpcore/cli/main.py", "import"),  # of the modules of verbs, which are ours: see cli/test_verbs.py
}


def private_side() -> list[Path]:
    """The modules that nothing below the privacy barrier may import, by the rule that lint-imports checks."""
    rule = next(c for c in CONFIG["importlinter"]["contracts"] if c["name"].startswith("Nothing below the privacy"))
    names = {*rule["forbidden_modules"], "dpcore.curator.ask", "dpcore.audit"}
    places = [ROOT / name.replace(".", "/") for name in sorted(names)]
    files = [
        file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")])
    ]
    assert len(files) > 60
    return files


def lint(folder: Path, *files: str) -> list[tuple[str, str]]:
    """Run the lint step's search as it is configured; return file and source of each finding."""
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--no-cache", "--output-format", "concise"]
    done = subprocess.run([*command, *files], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode in {0, 1}, done.stderr
    found = [line.split(": TID251 `") for line in done.stdout.splitlines() if "TID251" in line]
    return [(place.split(":")[0], said.split("`")[0]) for place, said in found]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the configuration and of the private side, to plant things in."""
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    for file in private_side():
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return tmp_path


def test_the_lint_step_knows_every_source_and_is_satisfied() -> None:
    assert "TID" in CONFIG["ruff"]["lint"]["select"]
    assert CONFIG["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"].keys() >= SOURCES
    assert "ruff check ." in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert lint(ROOT, ".") == []


def test_only_the_named_files_of_the_private_side_are_exempt_and_only_for_what_they_need(copy: Path) -> None:
    configured = (copy / "pyproject.toml").read_text(encoding="utf-8")
    start = configured.index("[tool.ruff.lint.per-file-ignores]")
    end = configured.index("\n[", start)
    (copy / "pyproject.toml").write_text(configured[:start] + configured[end:], encoding="utf-8")
    for file in copy.rglob("*.py"):
        file.write_text(file.read_text(encoding="utf-8").replace("noqa: TID251", ""), encoding="utf-8")
    found: dict[str, set[str]] = {}
    for file, source in lint(copy, "dpcore"):
        found.setdefault(file, set()).add(source)
    assert found == EXEMPT


PLANTED = [
    ("import random", "random"),
    ("from random import gauss", "random"),
    ("import secrets as s", "secrets"),
    ("import numpy.random as r", "numpy.random"),
    ("from numpy import random as r", "numpy.random"),
    ("from numpy.random import default_rng", "numpy.random"),
    ("import numpy as n\nNOISE = n.random.normal(3)", "numpy.random"),
    ("import numpy as np\ndef f(rng: np.random.Generator) -> None: ...", "numpy.random"),
    ("import os as o\nWORD = o.urandom(8)", "os.urandom"),
    ("from os import getrandom", "os.getrandom"),
    ("from uuid import uuid4", "uuid.uuid4"),
    ("from ssl import RAND_bytes", "ssl.RAND_bytes"),
    ("import pyarrow.compute as pc\nNOISE = pc.random(3)", "pyarrow.compute.random"),
    ("from opendp.measurements import make_laplace", "opendp"),
    ("from scipy.stats import norm", "scipy"),
]


def test_a_planted_source_is_reported_wherever_it_is(copy: Path) -> None:
    folders = {file.parent.relative_to(copy) for file in copy.rglob("*.py")}
    assert len(folders) > 6
    expected = set()
    for folder in folders:
        for number, (text, source) in enumerate(PLANTED):
            (copy / folder / f"planted_{number}.py").write_text(f'"""Planted."""\n\n{text}\n', encoding="utf-8")
            expected.add((str(folder / f"planted_{number}.py"), source))
    assert set(lint(copy, "dpcore")) == expected


def detours(text: str) -> Iterator[str]:
    """Yield what draws without naming a source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in DRAWING:
            yield node.attr
        elif isinstance(node, ast.Attribute) and node.attr == "random_words" and isinstance(node.ctx, ast.Store):
            yield "replaced"
        elif isinstance(node, ast.ImportFrom) and any(name.name == "random_words" for name in node.names):
            yield "own name"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(KERNEL):
            yield "kernel"
        elif isinstance(node, ast.Constant) and node.value in {"random", "numpy.random", "secrets"}:
            yield "named"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in {"__import__", "import_module", "exec", "eval"} or (
                name == "getattr" and "random" in ast.dump(node)
            ):
                yield "import"


def test_the_private_side_draws_by_no_detour() -> None:
    found = {
        (str(f.relative_to(ROOT)), what) for f in private_side() for what in detours(f.read_text(encoding="utf-8"))
    }
    assert found - HARMLESS == set()


@pytest.mark.parametrize(
    ("planted", "what"),
    [
        ("kept = table.sample(n=2)", "sample"),
        ("np.random.shuffle(rows)", "shuffle"),
        ("noise = scipy.stats.norm.rvs(3)", "rvs"),
        ("open('/dev/urandom', 'rb')", "kernel"),
        ("__import__('rand' + 'om')", "import"),
        ("importlib.import_module(name)", "import"),
        ("getattr(np, 'random').normal()", "import"),
        ("r = numpy\nr.random.normal()", "random"),
        ("mpmath.rand()", "rand"),
        ("vars(np)['random']", "named"),
        ("sys.modules['numpy.random']", "named"),
        ("exec(text)", "import"),
        ("entropy.random_words = stream", "replaced"),
        ("from dpcore.mechanisms.sampling.entropy import random_words", "own name"),
    ],
)
def test_a_detour_is_found(planted: str, what: str) -> None:
    assert what in set(detours(planted))
