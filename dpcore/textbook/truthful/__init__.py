"""Mechanism design with differential privacy: choose an outcome from the reports of self-interested players."""

from dpcore.textbook.truthful.bounds import Bound, gain_bound
from dpcore.textbook.truthful.commitment import Commitment, Gap, gap
from dpcore.textbook.truthful.exact import Exact
from dpcore.textbook.truthful.gains import Gain, gains, largest_gain
from dpcore.textbook.truthful.game import Decision, Game, Player, facility_game
from dpcore.textbook.truthful.mixture import TruthfulMixture
from dpcore.textbook.truthful.selection import PrivateSelection
from dpcore.textbook.truthful.welfare import Welfare, welfare

__all__ = [
    "Bound",
    "Commitment",
    "Decision",
    "Exact",
    "Gain",
    "Game",
    "Gap",
    "Player",
    "PrivateSelection",
    "TruthfulMixture",
    "Welfare",
    "facility_game",
    "gain_bound",
    "gains",
    "gap",
    "largest_gain",
    "welfare",
]
