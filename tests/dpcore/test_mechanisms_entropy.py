"""Our randomness comes from the operating system, and from nowhere else."""

import os
import re
from pathlib import Path

import numpy as np

import dpcore.mechanisms
from dpcore.mechanisms import entropy


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


def test_no_mechanism_touches_a_seeded_generator():
    forbidden = re.compile(r"np\.random|numpy\.random|import random|default_rng|secrets\.|seed=")
    for file in Path(dpcore.mechanisms.__file__).parent.glob("*.py"):
        assert not forbidden.search(file.read_text()), file.name
