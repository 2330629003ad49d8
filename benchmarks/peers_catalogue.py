"""The peers: the origin and settings of each, and notes that make the comparison fair to it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LARGE_CELLS = (
    10**8
)  # above this no dense histogram fits, and a graphical model needs a size limit to finish within hours
AIM_LIMIT_MB = 4


@dataclass(frozen=True)
class Peer:
    """A mechanism of another library.

    Attributes:
        name: Its name in the table and in `--peers`.
        requirements: The requirements for `pip`, each with its version.
        script: The script that runs it, in `peers_scripts`.
        settings: The script's settings on every table.
        large: Additional settings for a table of more than `LARGE_CELLS` cells.
        smoke: Additional settings for a run that only shows that it works.
        note: How its guarantee and its setup differ from the others'.
        absent: Why it cannot be run, for a peer that is listed only to say so.
    """

    name: str
    requirements: tuple[str, ...] = ()
    script: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, Any] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    absent: str = ""

    def settings_for(self, sizes: Mapping[str, int], *, smoke: bool = False) -> dict[str, Any]:
        """Return the settings for a table with columns of these sizes.

        >>> PEERS["dpmm-aim"].settings_for({"age": 85, "sex": 2})
        {'mechanism': 'aim', 'degree': 3}
        """
        more = self.large if math.prod(sizes.values()) > LARGE_CELLS else {}
        return {**self.settings, **more, **(self.smoke if smoke else {})}


_DPMM = ("dpmm==0.1.9",)
_DPMM_NOTE = (
    "zCDP at the same epsilon and delta, Gaussian marginals of sensitivity 1: add-remove. All columns are declared, so its binning, "
    "which would cost budget, is off. One job, which is its cheapest in CPU."
)
_OPENDP = ("opendp[mbi]==0.16.0", "mbi==1.1.0", "pandas==2.3.3")
_OPENDP_NOTE = (
    "zCDP with the rho that epsilon and delta allow, unit_of(contributions=1): add-remove. All columns are declared by cuts. By default "
    "half of the budget goes to the 1-way marginals."
)

_ALL = (
    Peer(
        "dpmm-aim",
        _DPMM,
        "run_dpmm.py",
        {"mechanism": "aim", "degree": 3},
        large={"max_model_size": AIM_LIMIT_MB},
        smoke={"n_iters": 50, "rounds": 4},
        note=_DPMM_NOTE
        + " Its workload is set to the 3-way marginals, of which it leaves out those above 10,000 cells, and its model has a limit only on"
        " a large table; the rest is default.",
    ),
    Peer(
        "dpmm-aim-pairs",
        _DPMM,
        "run_dpmm.py",
        {"mechanism": "aim"},
        large={"max_model_size": AIM_LIMIT_MB},
        smoke={"n_iters": 50, "rounds": 4},
        note=_DPMM_NOTE
        + " Default settings: its workload is all pairs, which is easier than the workload it is measured on.",
    ),
    Peer(
        "dpmm-mst",
        _DPMM,
        "run_dpmm.py",
        {"mechanism": "mst"},
        smoke={"n_iters": 50},
        note=_DPMM_NOTE + " Default settings. It has no workload: it measures a tree of pairs.",
    ),
    Peer(
        "smartnoise-mwem",
        ("smartnoise-synth==1.0.8",),
        "run_smartnoise.py",
        {"marginal_width": 3},
        large={"pairs": True, "iterations": 6, "marginal_width": 2},
        smoke={"iterations": 5},
        note="Pure epsilon: it does not use the delta, so its guarantee is stronger. Laplace marginals of sensitivity 1: add-remove. "
        "In its favour: it takes each column's range and the number of rows from the data at no cost. Its histogram is dense, so "
        "a large table is split into pairs of columns, each on its own, with 6 rounds instead of 50 for the three marginals of a pair.",
    ),
    Peer(
        "opendp-aim",
        _OPENDP,
        "run_opendp.py",
        {"mechanism": "aim", "queries": 3},
        large={"max_size": AIM_LIMIT_MB},
        smoke={"rounds": 4},
        note=_OPENDP_NOTE
        + " Otherwise default settings: all 3-way marginals, and a model of at most 80 MB unless another limit is shown.",
    ),
    Peer("mbi", absent="an engine without a mechanism of its own; measured as opendp-aim, which is built on it"),
    Peer("swift", absent="not on PyPI: its project, dpsynth, has not published a release there"),
)
PEERS = {peer.name: peer for peer in _ALL}
