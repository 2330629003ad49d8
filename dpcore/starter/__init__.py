"""Write a spec from a table's metadata: schemas, headers, catalogues, dictionaries, earlier releases, a public file. Rows are read for a charge only."""

from dpcore.starter.description import Description
from dpcore.starter.dialogue import HELP, Ask, fill
from dpcore.starter.draft import Draft, draft_of
from dpcore.starter.sources import KINDS, describe, describe_public, located
from dpcore.starter.write import spec_text

__all__ = [
    "HELP",
    "KINDS",
    "Ask",
    "Description",
    "Draft",
    "describe",
    "describe_public",
    "draft_of",
    "fill",
    "located",
    "spec_text",
]
