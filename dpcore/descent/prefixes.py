"""Find the frequent texts of a column, several letters at a time."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product

from dpcore.descent.descent import Descent, largest
from dpcore.errors import SpecError
from dpcore.marginals.measurements import Counts
from dpcore.universe import Categorical, Outside
from dpcore.universe.categorical import Stems

MOST_CANDIDATES = 100_000  # per level; more would need fewer levels, but the ledger stores every noisy count
NOTHING_FOUND = "other"


class PrefixDescent(Descent):
    """Find the frequent texts of a column, in a tree whose levels each add as many letters as MOST_CANDIDATES allows.

    For each kept prefix a level has these candidates: the text that ends there, all texts that end within the level, and all prefixes of
    texts that continue beyond it. The level keeps those that stand out, at most `most`, the largest first.
    """

    kind = "value"

    def __init__(self, template: Categorical, *, length: int, alphabet: str, share: Fraction) -> None:
        self._depths = depths(most=template.cells, length=length, alphabet=len(alphabet))
        super().__init__(template, share=share, levels=len(self._depths))
        self._categories, self._length, self._alphabet, self._most = template, length, alphabet, template.cells
        self._level = 0
        self._open: list[str] = [""]
        self._ended: dict[str, int] = {}
        self._asked: Stems | None = None

    @property
    def candidates(self) -> Stems | None:
        """All continuations of the prefixes that were kept."""
        if self._asked is None and self._open:
            self._asked = Stems(
                values=tuple(text for text in self._continued(self._depths[self._level]) if text),
                depth=self._depths[self._level],
                length=self._length,
                missing=True,
                nulls=self._template.nulls,
                outside=Outside.OTHER,
            )
        return self._asked

    def _continued(self, depth: int) -> Iterator[str]:
        """Yield the prefixes that were kept, each with all continuations up to a depth."""
        for stem in self._open:
            for letters in range(depth - len(stem) + 1):
                for more in product(self._alphabet, repeat=letters):
                    yield stem + "".join(more)

    def take(self, counts: Counts, *, least: int, noise: float) -> int:
        """Keep the candidates that stand out: those shorter than the level's depth as values, the others as prefixes."""
        del noise  # `least` follows from it
        asked = self.candidates
        if asked is None:
            return 0
        noisy = zip(map(str, asked.values), counts[: asked.cells].tolist(), strict=True)
        heavy = largest({text: count for text, count in noisy if count >= least}, self._most)
        whole = asked.depth == self._length
        self._ended |= {text: count for text, count in heavy.items() if whole or len(text) < asked.depth}
        self._open = [] if whole else sorted(text for text in heavy if len(text) == asked.depth)
        self._level += 1
        self._asked = None
        return len(heavy)

    def found(self) -> Categorical:
        """Return the texts that were found. If there are none, every value is `other`, whatever policy was declared."""
        texts = self._texts()
        if not texts:
            return replace(self._categories, values=(NOTHING_FOUND,), outside=Outside.OTHER)
        return replace(self._categories, values=tuple(texts))

    @property
    def number(self) -> int:
        """How many texts were found."""
        return len(self._texts())

    def _texts(self) -> list[str]:
        nulls = {text.strip() for text in self._template.nulls}
        return sorted(
            largest({text: count for text, count in self._ended.items() if text.strip() not in nulls}, self._most)
        )


def depths(*, most: int, length: int, alphabet: int) -> tuple[int, ...]:
    """Return the number of letters after each level. Levels are as deep as MOST_CANDIDATES allows, since fewer levels have less noise.

    >>> depths(most=100, length=6, alphabet=13), depths(most=100, length=6, alphabet=95)
    ((4, 6), (2, 3, 4, 5, 6))
    """
    if most * (1 + alphabet) > MOST_CANDIDATES:
        raise SpecError(
            f"`most` prefixes with one more letter are {most * (1 + alphabet):,} candidates, and a level may have {MOST_CANDIDATES:,}; "
            "look for fewer values, or declare a smaller alphabet"
        )
    reached = [0]
    while reached[-1] < length:
        stems, letters = min(most, alphabet ** reached[-1]), 1
        while (
            reached[-1] + letters < length and stems * sum(alphabet**n for n in range(letters + 2)) <= MOST_CANDIDATES
        ):
            letters += 1
        reached.append(reached[-1] + letters)
    return tuple(reached[1:])
