"""Override the few parts of a spec that the run form offers, for one run."""

from dataclasses import dataclass

from pydantic import ValidationError

from dpcore.errors import SpecError
from dpcore.spec.declaration import Declaration, declare
from dpcore.spec.release import MOST_ROWS, STRATEGIES, contradictions
from dpcore.spec.workload import MOST_COLUMNS

_FIELDS = {
    "epsilon": ("privacy", "epsilon", "a number above 0, such as 1.0"),
    "delta": ("privacy", "delta", "at least 0 and below 1, such as 1e-9; 0 is pure differential privacy"),
    "rows": ("output", "rows", f"a whole number from 1 to {MOST_ROWS:,}"),
    "workload": ("workload", "marginals", f"a whole number from 1 to {MOST_COLUMNS}"),
}
"""The section and key of the spec that each field replaces, and what it must be."""


@dataclass(frozen=True)
class Changes:
    """The fields of the run form. None keeps what the spec declares.

    Attributes:
        epsilon: The budget of the release.
        delta: The delta of its guarantee; 0 is pure differential privacy.
        rows: The number of rows of the release.
        workload: A number k for all k-way marginals; only those with the target, if one is declared.
        strategy: `adaptive`, `mwem` or `pmw`. The spec's options are kept if it names the same strategy, and dropped otherwise.
    """

    epsilon: float | None = None
    delta: float | None = None
    rows: int | None = None
    workload: int | None = None
    strategy: str | None = None


def changed(declaration: Declaration, changes: Changes) -> Declaration:
    """Return the declaration with the changes applied to its spec. Raise one SpecError that lists everything wrong with them."""
    spec, columns = declaration.spec, len(declaration.universe.names)
    mistakes: dict[str, str] = {}
    for field, (section, key, allowed) in _FIELDS.items():
        value, before = getattr(changes, field), getattr(spec, section)
        if value is None:
            continue
        try:
            after = type(before).model_validate({**dict(before), key: value})
        except ValidationError:
            mistakes[field] = f"must be {allowed}"
        else:
            spec = spec.model_copy(update={section: after})
    marginals = spec.workload.marginals
    if changes.workload is not None and not (isinstance(marginals, int) and marginals <= columns):
        mistakes.setdefault("workload", f"must be at most {columns}, as the universe has {columns} columns")
    if changes.strategy is not None and changes.strategy not in STRATEGIES:
        mistakes["strategy"] = f"must be {' or '.join(STRATEGIES)}"
    named = changes.strategy or (spec.strategy.name if spec.strategy is not None else None)
    for place, correction in contradictions(
        spec.workload, strategy=named, prior=spec.prior is not None, columns=columns
    ):
        mistakes.setdefault(str(place[0]), correction)
    if mistakes:
        raise SpecError("\n".join(f"`{field}` {correction}" for field, correction in mistakes.items()))
    if changes.strategy is not None and (spec.strategy is None or changes.strategy != spec.strategy.name):
        strategy = STRATEGIES[changes.strategy].model_validate({"name": changes.strategy})
        spec = spec.model_copy(update={"strategy": strategy})
    return declare(spec, universe=declaration.universe, path=declaration.path)
