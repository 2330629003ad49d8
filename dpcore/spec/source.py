"""Where the raw table is, as it is written in a spec."""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from fsspec.registry import known_implementations
from pydantic import AfterValidator, Field, model_validator

from dpcore.spec.attributes import SpecPart
from dpcore.spec.encodings import is_known, keeps_ascii

NO_QUOTE = "none"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SECRET = re.compile(r"key|token|sig|secret|passw|pwd|credential|auth", re.IGNORECASE)


def _path(text: str) -> str:
    scheme, separator, _ = text.partition("://")
    if not separator:
        return text
    if "::" in text:
        raise ValueError("must be one address; chains of them (::) may leave copies of the raw table behind")
    if scheme.lower() not in known_implementations:
        raise ValueError(
            "begins as no address that can be read; use s3://, gs://, az://, https://, or `sql` for a database"
        )
    if _has_secret(text):
        # the text itself is not repeated
        raise ValueError(
            "has a password or key in it; remove it, and set the environment variables that its file system reads"
        )
    return text


def _has_secret(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return True  # nobody can tell
    user, at, _ = parts.netloc.rpartition("@")
    named = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    in_user = bool(at) and (":" in user or parts.scheme.lower() in {"http", "https"})
    return in_user or any(map(_SECRET.search, named))


def _one_character(what: str) -> Any:
    def check(text: str) -> str:
        if len(text) != 1 or not text.isascii() or text in "\r\n\0":
            raise ValueError(f"must be one plain character, such as {what}")
        return text

    return AfterValidator(check)


def _quote(text: str) -> str:
    if text != NO_QUOTE and (len(text) != 1 or not text.isascii() or text in "\r\n\0"):
        raise ValueError(f'must be one plain character, such as "\'", or `{NO_QUOTE}` where the files have no quoting')
    return text


def _encoding(text: str) -> str:
    if not is_known(text):
        raise ValueError("is no encoding that is known here; write one such as utf-8, latin-1 or cp1252")
    if not keeps_ascii(text):
        raise ValueError(
            "is an encoding in which one value can change how others are read; convert the file to UTF-8 first, as in "
            "`iconv -f ENCODING -t UTF-8 visits.csv > visits-utf8.csv`, or to Parquet, and leave `encoding` out"
        )
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(_VARIABLE, text):
        # it may be the address itself, with its password
        raise ValueError("must be the name of an environment variable, such as CLINIC_DB; let that hold the address")
    return text


class SourceSpec(SpecPart):
    """Where the raw table is: files, or a query to a database. Passwords and keys come from the environment, never from here."""

    path: Annotated[str, Field(min_length=1), AfterValidator(_path)] | None = Field(
        None,
        description="a CSV, Parquet or Arrow file, a folder of them, a pattern such as visits/*.parquet, or an address such as s3://bucket/visits; "
        "relative to the spec; `*`, `?` and `[` always make a pattern of files, and `[[]` names a bracket",
    )
    format: Literal["csv", "parquet", "arrow"] | None = Field(
        None, description="what the files are; left out, their endings tell"
    )
    delimiter: Annotated[str, _one_character('";" or "\\t"')] | None = Field(
        None, description="between the values of a CSV file; left out, a comma, or a tab in .tsv files"
    )
    quote: Annotated[str, AfterValidator(_quote)] | None = Field(
        None,
        description='around values of a CSV file that hold a delimiter; left out, "; `none` where quotation marks are only text',
    )
    encoding: Annotated[str, Field(min_length=1), AfterValidator(_encoding)] | None = Field(
        None,
        description="of CSV files, such as latin-1 or cp1252; left out, UTF-8, and Latin-1 value by value where that fails",
    )
    sql: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="a query whose result is the table, in place of `path`"
    )
    url_env: Annotated[str, AfterValidator(_variable)] | None = Field(
        None, description="the environment variable that holds the database's address, such as CLINIC_DB"
    )

    @classmethod
    def none(cls) -> "SourceSpec":
        """Return the source of a spec that has none: the table is handed over from Python."""
        return cls.model_construct()

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.path is None) == (self.sql is None):
            raise ValueError("needs either `path: visits.csv`, or `sql: select ...` with `url_env: VARIABLE`")
        if (self.sql is None) != (self.url_env is None):
            raise ValueError(
                "needs `sql` and `url_env` together: the query, and the environment variable that holds the database's address"
            )
        csv_only = (self.delimiter, self.quote, self.encoding)
        if self.sql is not None and any((self.format, *csv_only)):
            raise ValueError("has a query, which takes no `format`, `delimiter`, `quote` or `encoding`; remove them")
        if self.format not in {None, "csv"} and any(csv_only):
            raise ValueError("is not of CSV files, and takes no `delimiter`, `quote` or `encoding`; remove them")
        if self.quote is not None and self.quote == self.delimiter:
            raise ValueError("has the same character as `delimiter` and `quote`; they must differ")
        return self
