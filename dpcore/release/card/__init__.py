"""The card of a release: one self-contained HTML page. Pictures of the data come first, then the promise, then how the release was made."""

from dpcore.release.card.page import STYLE, card

__all__ = ["STYLE", "card"]
