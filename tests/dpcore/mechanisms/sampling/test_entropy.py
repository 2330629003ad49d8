"""Our randomness comes from the operating system, and from nowhere else."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dpcore.mechanisms
from dpcore.mechanisms.sampling import entropy

pytestmark = pytest.mark.system_entropy


def test_words_are_the_operating_systems_bytes(monkeypatch):
    asked: list[int] = []

    def recorded(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    monkeypatch.setattr(os, "urandom", recorded)
    words = entropy.random_words(3)
    assert words.dtype == np.uint64
    assert words.tobytes() == bytes(range(24))
    assert asked == [24]


def test_words_are_uniform_and_never_the_same_twice():
    words = entropy.random_words(100_000)
    assert len(np.unique(words)) == 100_000
    ones = [int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    assert max(abs(count - 50_000) for count in ones) < 7 * 158
    assert not np.array_equal(entropy.random_words(10), entropy.random_words(10))
    assert entropy.random_words(0).size == 0


FORBIDDEN = re.compile(r"np\.random|numpy\.random|import random|default_rng|secrets\.|seed=|opendp|urandom|getrandom")


def test_no_mechanism_has_another_source_of_randomness():
    files = list(Path(dpcore.mechanisms.__file__).parent.rglob("*.py"))
    found = [file.name for file in files if FORBIDDEN.search(file.read_text())]
    assert found == ["entropy.py"]


@pytest.mark.parametrize("line", ["rng = np.random.default_rng(1)", "import random", "from opendp.mod import x"])
def test_another_source_would_be_found(line):
    assert FORBIDDEN.search(line)


def test_nobody_has_the_words_by_a_name_of_their_own_which_a_test_could_not_replace():
    direct = re.compile(r"import random_words|import \*|entropy import")
    for file in Path(dpcore.mechanisms.__file__).parent.rglob("*.py"):
        assert not direct.search(file.read_text()), file.name


def test_a_forked_process_and_its_parent_never_have_the_same_words():
    """A generator with a state would give both the same ones."""
    entropy.random_words(4)
    seeded = np.random.default_rng(1)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, entropy.random_words(4).tobytes() + seeded.bytes(32))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 64)
    os.close(reading)
    os.close(writing)
    assert theirs[:32] != entropy.random_words(4).tobytes()
    assert theirs[32:] == seeded.bytes(32)


def test_threads_never_have_the_same_words():
    with ThreadPoolExecutor(8) as pool:
        words = np.concatenate(list(pool.map(entropy.random_words, [500] * 200)))
    assert len(np.unique(words)) == 100_000
