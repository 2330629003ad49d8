"""NUL bytes are hidden from a reader, and every text comes back as it was."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dpcore.tables.sources.nul_escape import NulEscape


@given(
    st.lists(st.none() | st.text(st.sampled_from("\0\1\2\3\4ab"), max_size=8)), st.sampled_from([",", '\1"', "\2\4"])
)
def test_what_was_hidden_comes_back(texts: list[str | None], taken: str) -> None:
    escape = NulEscape.beside(taken)
    hidden = [None if text is None else escape.hide(text.encode()) for text in texts]
    assert not any(b"\0" in text for text in hidden if text is not None)
    shown = escape.show(pa.array(hidden, pa.binary()).cast(pa.string()))
    assert shown.to_pylist() == texts


@given(st.text(st.sampled_from("\0\1\2\3\4,"), max_size=8), st.sampled_from(["\1,", "\3\2", '\t"']))
def test_no_character_with_a_meaning_comes_in_or_goes(text: str, taken: str) -> None:
    hidden = NulEscape.beside(taken).hide(text.encode()).decode()
    assert [character for character in hidden if character in taken] == [c for c in text if c in taken]
