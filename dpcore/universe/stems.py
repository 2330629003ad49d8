"""The beginnings of texts as categories: what one level of a descent through a tree of prefixes counts."""

from dataclasses import dataclass

from dpcore.errors import SpecError
from dpcore.universe.categorical import Categorical
from dpcore.universe.places import ALIEN


@dataclass(frozen=True, kw_only=True)
class Stems(Categorical):
    """Declared texts, of which those of `depth` letters also stand for every longer text that begins with them.

    A shorter one stands for itself alone, and so do all of them where `depth` is the `length` that no text may exceed: a longer one is
    as undeclared as one that begins with nothing on the list.

    >>> import pyarrow as pa
    >>> from dpcore.universe import Outside
    >>> stems = Stems(values=("2", "25", "V1"), depth=2, length=4, outside=Outside.OTHER)
    >>> stems.encode(pa.array(["2", "25", "250", "29", "V1.2", "V1.23"])).tolist()
    [0, 1, 1, 3, 2, 3]
    """

    depth: int
    length: int

    def __post_init__(self) -> None:
        """Refuse stems that no text could begin with."""
        super().__post_init__()
        if not 1 <= self.depth <= self.length or any(len(text) > self.depth for text in self._texts):
            raise SpecError("stems have at most `depth` letters, and `depth` is at most `length`")

    def _refuse_null_values(self) -> None:
        """Let a text that counts as null stand for the longer ones that begin with it."""

    def _place_longer(self, text: str) -> int:
        if self.depth < len(text) <= self.length:
            return self._cells_by_text.get(text[: self.depth], ALIEN)
        return ALIEN
