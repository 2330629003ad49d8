"""Write `deployment.yaml`: the release as an entry for the OpenDP deployments registry (https://registry.opendp.org).

What people must say is in the spec's `about`. All else follows from the privacy statement and from how dpflow works. What neither says, such as
whether there will be more releases, is left out. The form is that of `schemas/deployments-schema.yaml` in opendp/deployments-registry-data.
"""

import math
import re
from typing import Any

import yaml

from dpcore.release.draft import Draft
from dpcore.release.statement import Statement
from dpcore.spec.about import AboutSpec

DEPLOYMENT = "deployment.yaml"
_FIRST = """\
# An entry for the OpenDP deployments registry, https://registry.opendp.org. Read it, and send it as a pull request to
# https://github.com/opendp/deployments-registry-data
"""
_MISSING = "# dpflow cannot know the following; add it under `model`: {}\n"
_ONLY_PEOPLE_KNOW = {
    "release_type": "`release_type` (One release, or Many releases)",
    "data_source_type": "`data_source_type` (Static, or Dynamic if new data come in)",
}
_ACTORS = (
    "The steward holds the real table and is trusted with it. Analysts and everybody else see releases only, may combine them with anything "
    "that they know, and are not trusted."
)
_POST_PROCESSING = (
    "A model is fitted to the noisy measurements, and the rows are drawn from the model. Counts, intervals and pictures of the release are "
    "computed from the measurements and the model, too. None of this reads the table again."
)
_MECHANISMS = (
    "Counts get noise that is a whole number (discrete Laplace, discrete Gaussian or rounded Gaussian), and choices are made with the exponential "
    "mechanism or with noisy counts. A ledger charges the price of each step before its noise is drawn. Randomness comes from the operating system, and "
    "the noise is added to whole numbers, so no floating-point error reaches a measurement."
)


def registry_entry(draft: Draft, about: AboutSpec, *, created: str) -> str:
    """Return the entry as YAML.

    Args:
        draft: The content of the release.
        about: What the spec says about the dataset.
        created: When the release was written, as in its manifest.
    """
    model = _model(draft)
    missing = [words for key, words in _ONLY_PEOPLE_KNOW.items() if key not in model]
    entry = {
        "url_slug": _slug(about.title, *about.curators, created[:4]),
        "status": "Draft",
        "tier": 2 if about.justification is None else 3,
        "deployment": {
            "product": _product(about, created),
            "dp_flavor": _flavor(draft),
            "privacy_loss": _loss(draft.statement),
            "model": model,
            "accounting": _accounting(draft.statement),
            "implementation": _implementation(draft, about),
            "resources": _resources(draft, about),
        },
    }
    written: str = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=120)
    return _FIRST + (_MISSING.format(" and ".join(missing)) if missing else "") + written


def _slug(*words: str) -> str:
    """Return words as part of an address.

    >>> _slug("Clinic visits", "Health Office", "2026")
    'clinic-visits-health-office-2026'
    """
    return "-".join(re.findall(r"[a-z0-9]+", " ".join(words).lower()))


def _product(about: AboutSpec, created: str) -> dict[str, Any]:
    return {
        "name": about.title,
        "data_curators": list(about.curators),
        "intended_use": about.intended_use,
        "data_product_type": "Synthetic data",
        "data_product_region": about.region,
        "description": about.description,
        "publication_date": created[:10],
        **({} if about.sector is None else {"data_product_sector": about.sector}),
    }


def _flavor(draft: Draft) -> dict[str, Any]:
    universe, statement = draft.declaration.universe, draft.statement
    columns = ", ".join(f"`{name}`" for name in universe.attributes)
    public = "The spec with all its settings is public."
    if statement.neighbours == "replace-one":
        public += " The number of units is the same in neighbouring tables, so it is not protected."
    if statement.blocks is not None:
        public += f" The release covers {statement.blocks.words}; which blocks these are is public."
    return {
        "name": "Approximate DP",  # with delta 0 too, because the samplers add to it
        "data_domain": f"All tables with the columns {columns}, of any number of rows. Values that were not declared are clipped, counted as other, or their rows are dropped.",
        "unprotected_quantities": f"Everything that the release takes from the table has noise. {public}",
    }


def _loss(statement: Statement) -> dict[str, Any]:
    delta = math.nextafter(statement.delta + statement.sampler_delta, math.inf)  # not below the sum
    unit = "One row" if statement.unit == "row" else f"All rows with the same `{statement.unit}`"
    return {
        "privacy_unit": unit,
        "privacy_unit_description": f"Neighbouring tables differ by {statement.difference}.",
        "privacy_parameters": {"epsilon": statement.epsilon, "delta": delta},
        "privacy_parameters_description": f"{statement.sentence} {statement.sampling} This is the promise of this release alone.",
    }


def _model(draft: Draft) -> dict[str, Any]:
    model = {"model_name": "Central", "actors": _ACTORS}
    if draft.before is not None or draft.statement.blocks is not None:
        model["release_type"] = "Many releases"
        model["release_type_description"] = (
            "Every release of the dataset is charged to one account in a ledger. All of them together cannot exceed the cap of the account, or of each block."
        )
    if draft.statement.blocks is not None:
        model["data_source_type"] = "Dynamic"
        model["data_source_type_description"] = f"Rows are divided into blocks by {draft.statement.blocks.by}."
    model["access_type"] = "Non-interactive"
    model["access_type_description"] = "Readers get files. Questions about a release are answered from these files."
    return model


def _accounting(statement: Statement) -> dict[str, Any]:
    return {
        "post_processing": _POST_PROCESSING,
        "composition": f"The prices of all steps add up, by {statement.accounting}. Each run reserves its budget before it reads the table, and the promise is that of the whole reservations of all runs that the release is made from.",
    }


def _implementation(draft: Draft, about: AboutSpec) -> dict[str, Any]:
    columns = ", ".join(f"`{finding.column}`" for finding in draft.findings)
    bought = (
        f" The values or bins of {columns} were found in the table with noise, and their price is part of epsilon."
        if columns
        else ""
    )
    limit = draft.statement.max_rows_per_unit
    limited = (
        ""
        if draft.statement.unit == "row" or draft.statement.by_norm
        else f" At most {limit:,} rows of a unit, chosen at random, were kept."
    )
    made_by = ", ".join(f"{name} {number}" for name, number in draft.statement.versions.items())
    sentences = {
        "pre_processing_eda_hyperparameter_tuning": f"Nothing was computed from the table for this release that was not charged.{limited}{bought}",
        "mechanisms": f"{_MECHANISMS} Strategy: {draft.declaration.strategy.name}. Made by {made_by}.",
    }
    return sentences if about.justification is None else sentences | {"justification": about.justification}


def _resources(draft: Draft, about: AboutSpec) -> dict[str, Any]:
    statement = draft.statement
    resources: dict[str, Any] = {}
    if about.sources is not None:
        resources["sources"] = "\n".join(f"- {source}" for source in about.sources)
    resources["notes"] = (
        f"Release `{draft.name}`. Its `manifest.json` has the complete statement. SHA-256 of the spec: {statement.spec_sha256}; head of the ledger: {statement.ledger_head}."
    )
    return resources | {"registry_authors": list(about.authors)}
