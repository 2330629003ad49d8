"""Mechanism design with differential privacy: choose an outcome from the reports of self-interested players."""

from dpcore.truthful.bounds import Bound, gain_bound
from dpcore.truthful.commitment import Commitment, Gap, gap
from dpcore.truthful.exact import Exact
from dpcore.truthful.gains import Gain, gains, largest_gain
from dpcore.truthful.game import Decision, Game, Player, facility_game
from dpcore.truthful.mixture import TruthfulMixture
from dpcore.truthful.selection import PrivateSelection
from dpcore.truthful.welfare import Welfare, welfare

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
