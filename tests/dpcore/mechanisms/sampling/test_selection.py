"""Selections have their probabilities to the last of 128 bits, whatever the scores."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms.sampling import entropy, selection
from tests.contracts.mechanism import fixed_stream, recorded_words

mp = mpmath.MPContext()
mp.prec = 900


def exact_edges(differences: list[int], rate: Fraction) -> list[int]:
    """The first 128-bit number beyond each candidate's share."""
    weights = [mp.exp(-mp.mpf((rate * d).numerator) / (rate * d).denominator) for d in differences]
    total = mp.fsum(weights)
    return [int(mp.ceil(mp.ldexp(edge / total, 128))) for edge in itertools.accumulate(weights)]


def selected(differences: list[int], rate: Fraction, number: int, monkeypatch) -> int:
    monkeypatch.setattr(entropy, "random_words", fixed_stream([number >> 64, number % (1 << 64)]))
    return selection.softmax(np.array(differences, dtype=np.uint64), rate=rate)


@pytest.mark.parametrize(
    ("differences", "rate"),
    [
        ([0, 1], Fraction(1, 3)),
        ([9, 0, 4, 2, 0, 7, 1, 30], Fraction(0.1)),
        ([50, 3, 0, 60, 44], Fraction(1)),
        ([2**64 - 1, 2**63, 0, 5], Fraction(1, 2**62)),
        ([7, 3, 0, 5, 11, 2] * 5, Fraction(1, 2**70)),
    ],
)
def test_a_selection_is_the_exact_comparison_of_128_bits(differences, rate, monkeypatch):
    edges = exact_edges(differences, rate)
    for place, edge in enumerate(edges[:-1]):
        assert selected(differences, rate, edge - 1, monkeypatch) == place
        assert selected(differences, rate, edge, monkeypatch) == place + 1
    assert selected(differences, rate, 0, monkeypatch) == 0
    assert selected(differences, rate, (1 << 128) - 1, monkeypatch) == len(differences) - 1


def test_far_candidates_at_the_end_and_the_start_have_no_share(monkeypatch):
    differences = [2**64 - 1, 900, 0, 0, 900, 2**64 - 1]
    for number, place in ((0, 2), ((1 << 127) - 1, 2), (1 << 127, 3), ((1 << 128) - 1, 3)):
        assert selected(differences, Fraction(1), number, monkeypatch) == place


@pytest.mark.parametrize("size", [1, 2, 3, 10, 99, 1000])
def test_floats_decide_as_hundreds_of_bits_would(size, monkeypatch):
    generator = np.random.default_rng(size)
    for _ in range(40):
        differences = generator.integers(0, 40, size).astype(np.uint64)
        high, low = generator.integers(0, 2**64, 2, dtype=np.uint64).tolist()
        monkeypatch.setattr(entropy, "random_words", fixed_stream([high, low]))
        exact = selection._settled(differences, rate=Fraction(1, 9), number=high << 64 | low)
        assert selection.softmax(differences, rate=Fraction(1, 9)) == exact


def test_hardly_any_selection_needs_hundreds_of_bits(monkeypatch):
    monkeypatch.setattr(selection, "_settled", None)
    differences = np.arange(10_000, dtype=np.uint64)
    for _ in range(300):
        selection.softmax(differences, rate=Fraction(1, 1000))


def test_permute_and_flip_takes_each_accepted_candidate_as_often(monkeypatch):
    """The coins say yes to places 1, 2 and 4; the last word decides among them."""
    differences = np.array([1, 0, 2, 3, 1], dtype=np.uint64)
    words = [2**64 - 1, 5, 0, 1 << 63, 1 << 60]
    for last, place in ((3 * 10**18, 1), (3 * 10**18 + 1, 2), (3 * 10**18 + 2, 4), (3, 1)):
        monkeypatch.setattr(entropy, "random_words", fixed_stream([*words, last]))
        assert selection.permute_and_flip(differences, rate=Fraction(1)) == place


def test_the_words_taken_depend_on_the_number_of_candidates_only(monkeypatch):
    for select, expected in ((selection.softmax, 2), (selection.permute_and_flip, 5001)):
        for differences in (np.zeros(5000), np.arange(5000), np.append(np.full(4999, 2**63), 0)):
            taken: list[int] = []
            words = recorded_words(1)

            def counted(count, taken=taken, words=words):
                taken.append(count)
                return words(count)

            monkeypatch.setattr(entropy, "random_words", counted)
            select(differences.astype(np.uint64), rate=Fraction(1, 500))
            assert sum(taken) == expected


def test_the_distance_to_the_best_is_right_for_any_64_bit_scores():
    scores = np.array([-(2**63), 2**63 - 1, 0, -1, 5], dtype=np.int64)
    assert selection.behind_best(scores).tolist() == [2**63 - 1 - int(score) for score in scores]
    assert selection.behind_best(np.array([-7, -9], dtype=np.int64)).tolist() == [0, 2]
    assert scores[0] == -(2**63)


@pytest.mark.parametrize("scores", [np.zeros(0, np.int64), np.zeros(3), np.zeros((1, 3), np.int64), [1, 2], None])
def test_what_are_no_scores_is_refused(scores):
    with pytest.raises(UsageError, match=r"scores must be|nothing to select"):
        selection.behind_best(scores)
