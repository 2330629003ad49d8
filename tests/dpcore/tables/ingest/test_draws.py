"""Draws are the same for a row whenever and wherever they are asked for, and look like nothing else."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.tables.ingest.draws import CHUNK_WORDS, Draws

PLACES = st.integers(0, 3 * CHUNK_WORDS)


@given(start=PLACES, count=PLACES, piece=st.integers(0, 2**40))
def test_a_row_has_its_draw_however_the_piece_is_cut(start: int, count: int, piece: int) -> None:
    draws = Draws(b"k" * 32)
    whole = draws.words(piece, 0, start + count)
    assert np.array_equal(draws.words(piece, start, count), whole[start:])
    assert whole.dtype == np.uint64


def test_pieces_runs_and_blocks_share_no_draws() -> None:
    one, other = Draws.fresh(), Draws.fresh()
    words = np.concatenate([draws.words(piece, 0, 2 * CHUNK_WORDS) for draws in (one, other) for piece in (0, 1, 256)])
    assert len(np.unique(words)) == len(words)
    assert one.unit_key() != other.unit_key()
    assert len(one.unit_key()) == 32


def p_value(words: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> float:
    """Test the highest and the lowest byte for being uniform together."""
    both = (words >> np.uint64(60)) * np.uint64(16) + (words & np.uint64(15))
    return float(stats.chisquare(np.bincount(both.astype(np.int64), minlength=256)).pvalue)


def test_draws_are_uniform_and_the_check_would_see_a_slight_slope() -> None:
    words = Draws.fresh().words(0, 0, 200_000)
    assert p_value(words) > 1e-9
    sloped = ((words.astype(np.float64) / 2**64) ** 1.05 * 2**63).astype(np.uint64) * np.uint64(2)
    assert p_value(sloped) < 1e-9


def test_a_worker_of_the_cluster_gets_the_same_draws_and_nobody_is_shown_them() -> None:
    draws = Draws(bytes(range(32)))
    carried = pickle.loads(pickle.dumps(draws))  # noqa: S301  our own
    assert np.array_equal(carried.words(7, 5, 10), draws.words(7, 5, 10))
    assert repr(draws) == str(draws) == f"{draws}" == "<Draws: private, not shown>"
    with pytest.raises(TypeError, match="is private"):
        hash(draws)
    assert not hasattr(draws, "__dict__")
