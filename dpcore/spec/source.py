"""The spec's `source`: where the raw table is."""

import re
from contextlib import suppress
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from fsspec.registry import known_implementations
from pydantic import AfterValidator, Field, model_validator

from dpcore.spec.encodings import is_known, keeps_ascii
from dpcore.spec.parts import SpecPart

NO_QUOTE = "none"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_SECRET = re.compile(r"key|token|sig|secret|passw|pwd|credential|auth", re.IGNORECASE)


def _path(text: str) -> str:
    # Which folders exist would decide how often such a path finds a file.
    if re.search(r"[*?[].*/\.\.(/|$)", text, re.DOTALL):  # a name may contain a line break
        raise ValueError("goes up (`..`) after a pattern; write the folder without `..`")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return text
    if "::" in text:
        raise ValueError("must be a single URL; chained URLs (::) can leave copies of the raw table behind")
    if scheme.lower() not in known_implementations:
        raise ValueError(
            "starts with an unsupported URL scheme; use s3://, gs://, az://, https://, or `sql` for a database"
        )
    # the text may contain a secret, so no message below repeats it
    if not _is_url(text):
        raise ValueError("is not a valid URL; check its host and brackets, and write it as s3://bucket/visits")
    if _has_secret(text):
        raise ValueError(
            "contains a password or key; remove it, and set the environment variables that its file system reads"
        )
    return text


def _is_url(address: str) -> bool:
    with suppress(ValueError):
        return bool(urlsplit(address))
    return False


def _has_secret(address: str) -> bool:
    parts = urlsplit(address)
    user, at, _ = parts.netloc.rpartition("@")
    named = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    in_user = bool(at) and (":" in user or parts.scheme.lower() in {"http", "https"})
    return in_user or any(map(_SECRET.search, named))


def _is_plain_character(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _one_character(what: str) -> Any:
    def check(text: str) -> str:
        if not _is_plain_character(text):
            raise ValueError(f"must be one plain character, such as {what}")
        return text

    return AfterValidator(check)


def _quote(text: str) -> str:
    if text != NO_QUOTE and not _is_plain_character(text):
        raise ValueError(f'must be one plain character, such as "\'", or `{NO_QUOTE}` if the files have no quoting')
    return text


def _encoding(text: str) -> str:
    if not is_known(text):
        raise ValueError("is not a known encoding; write one such as utf-8, latin-1 or cp1252")
    if not keeps_ascii(text):
        raise ValueError(
            "is an encoding in which one value can change how others are read; convert the file to UTF-8 first, as in "
            "`iconv -f ENCODING -t UTF-8 visits.csv > visits-utf8.csv`, or to Parquet, and leave `encoding` out"
        )
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(_VARIABLE, text):
        # the text may be the URL itself, with its password, so the message must not repeat it
        raise ValueError(
            "must be the name of an environment variable, such as CLINIC_DB; put the URL into that variable"
        )
    return text


class SourceSpec(SpecPart):
    """The raw table: files, or a database query. Passwords and keys come from the environment, never from the spec."""

    path: Annotated[str, Field(min_length=1), AfterValidator(_path)] | None = Field(
        None,
        description="a CSV, Parquet or Arrow file, a folder of them, a pattern such as visits/*.parquet, or a URL such as s3://bucket/visits; "
        "relative to the spec; `*`, `?` and `[` always make a pattern of files, and `[[]` names a bracket",
    )
    format: Literal["csv", "parquet", "arrow"] | None = Field(
        None, description="the format of the files; default: by their suffixes"
    )
    delimiter: Annotated[str, _one_character('";" or "\\t"')] | None = Field(
        None, description="the delimiter of CSV files; default: a comma, or a tab in .tsv files"
    )
    quote: Annotated[str, AfterValidator(_quote)] | None = Field(
        None,
        description="the quote character of CSV files; default: the double quotation mark. Write `none` if quotation marks are ordinary text",
    )
    encoding: Annotated[str, Field(min_length=1), AfterValidator(_encoding)] | None = Field(
        None,
        description="the encoding of CSV files, such as latin-1 or cp1252; default: UTF-8, with Latin-1 for each value that is not valid UTF-8",
    )
    sql: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="a query whose result is the table, instead of `path`"
    )
    url_env: Annotated[str, AfterValidator(_variable)] | None = Field(
        None, description="the environment variable that holds the database URL, such as CLINIC_DB"
    )

    @classmethod
    def none(cls) -> "SourceSpec":
        """Return the empty source of a spec whose table is passed from Python."""
        return cls.model_construct()

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.path is None) == (self.sql is None):
            raise ValueError("needs either `path: visits.csv`, or `sql: select ...` with `url_env: VARIABLE`")
        if (self.sql is None) != (self.url_env is None):
            raise ValueError(
                "needs `sql` and `url_env` together: the query, and the environment variable that holds the database URL"
            )
        csv_only = (self.delimiter, self.quote, self.encoding)
        if self.sql is not None and any((self.format, *csv_only)):
            raise ValueError("has a query, which takes no `format`, `delimiter`, `quote` or `encoding`; remove them")
        if self.format not in {None, "csv"} and any(csv_only):
            raise ValueError("has a format that takes no `delimiter`, `quote` or `encoding`; remove them")
        if self.quote is not None and self.quote == self.delimiter:
            raise ValueError("has the same character for `delimiter` and `quote`; choose different ones")
        return self
