"""Prefixes of texts as categories, which one level of a descent through the prefix tree counts."""

from dataclasses import dataclass

from dpcore.errors import SpecError
from dpcore.universe.categorical import Categorical
from dpcore.universe.places import ALIEN


@dataclass(frozen=True, kw_only=True)
class Stems(Categorical):
    """Declared texts of up to `depth` characters. Those of exactly `depth` characters also match every longer text that begins with them.

    A shorter text matches only itself. Texts longer than `length` are undeclared, so at `depth` equal to `length` every declared text
    matches only itself.

    >>> import pyarrow as pa
    >>> from dpcore.universe import Outside
    >>> stems = Stems(values=("2", "25", "V1"), depth=2, length=4, outside=Outside.OTHER)
    >>> stems.encode(pa.array(["2", "25", "250", "29", "V1.2", "V1.23"])).tolist()
    [0, 1, 1, 3, 2, 3]
    """

    depth: int
    length: int

    def __post_init__(self) -> None:
        """Reject stems longer than `depth`, and a `depth` beyond `length`."""
        super().__post_init__()
        if not 1 <= self.depth <= self.length or any(len(text) > self.depth for text in self._texts):
            raise SpecError(
                "`depth` must be from 1 to `length`, and no stem may have more than `depth` characters: raise `depth`, or shorten the stems"
            )

    def _refuse_null_values(self) -> None:
        """Allow a stem that equals a text for null, since it also matches longer texts that begin with it."""

    def _place_longer(self, text: str) -> int:
        if self.depth < len(text) <= self.length:
            return self._cells_by_text.get(text[: self.depth], ALIEN)
        return ALIEN
