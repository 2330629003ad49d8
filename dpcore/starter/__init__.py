"""Write a spec from a table's metadata: schemas, headers, catalogues, dictionaries, earlier releases. No row is read."""

from dpcore.starter.description import Description
from dpcore.starter.dialogue import HELP, Ask, fill
from dpcore.starter.draft import Draft, draft_of
from dpcore.starter.sources import KINDS, describe
from dpcore.starter.write import spec_text

__all__ = ["HELP", "KINDS", "Ask", "Description", "Draft", "describe", "draft_of", "fill", "spec_text"]
