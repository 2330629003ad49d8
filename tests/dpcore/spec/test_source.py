"""What a spec may say about its source, and how each mistake in it is told, without a secret in the answer."""

from pathlib import Path

import pytest

from dpcore.errors import SpecError
from dpcore.spec import load_spec

SECRET = "Zq7secret"  # noqa: S105  to be looked for
SPEC = """\
dataset: visits
source: {SOURCE}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M]}
"""


def write(folder: Path, source: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(SPEC.replace("SOURCE", source), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "source",
    [
        "path: visits.csv",
        'path: visits.txt, delimiter: ";", quote: "\'", encoding: latin-1',
        'path: visits.txt, delimiter: "\\t", quote: none, encoding: utf-8-sig',
        "path: visits.dat, format: parquet",
        "path: s3://bucket/visits/*.parquet",
        "path: abfs://container@account.dfs.core.windows.net/visits",
        "path: sftp://maria@host/visits.csv",
        "path: 'https://example.org/visits.csv?version=3'",
        "path: file:///srv/visits",
        "sql: select * from visits, url_env: CLINIC_DB",
    ],
)
def test_every_form_of_a_source_is_accepted(tmp_path: Path, source: str) -> None:
    load_spec(write(tmp_path, source))


@pytest.mark.parametrize(
    ("source", "token", "hint"),
    [
        ("", "source:", "needs either `path: visits.csv`, or `sql: select ...`"),
        ("path: a.csv, sql: select 1, url_env: X", "source:", "needs either `path: visits.csv`"),
        ("sql: select 1", "source:", "needs `sql` and `url_env` together"),
        ("path: a.csv, url_env: X", "source:", "needs `sql` and `url_env` together"),
        ("sql: select 1, url_env: X, delimiter: a", "source:", "has a query, which takes no `format`"),
        ("path: a.parquet, format: parquet, quote: none", "source:", "has a format that takes no"),
        ("path: a.csv, delimiter: a, quote: a", "source:", "choose different ones"),
        ("path: a.csv, delimiter: ab", "delimiter:", 'must be one plain character, such as ";" or "\\t"'),
        ('path: a.csv, delimiter: "\\n"', "delimiter:", "must be one plain character"),
        ("path: a.csv, delimiter: §", "delimiter:", "must be one plain character"),
        ("path: a.csv, quote: nothing", "quote:", "or `none` if the files have no quoting"),
        ("path: a.csv, encoding: klingon", "encoding:", "write one such as utf-8, latin-1"),
        ("path: a.csv, encoding: utf-7", "encoding:", "convert the file to UTF-8 first, as in `iconv -f ENCODING"),
        ("path: a.csv, encoding: iso2022_jp", "encoding:", "convert the file to UTF-8 first"),
        ("path: a.csv, encoding: utf-16", "encoding:", "convert the file to UTF-8 first"),
        ("path: a.csv, encoding: UTF-32-LE", "encoding:", "convert the file to UTF-8 first"),
        ("path: a.csv, encoding: shift_jis", "encoding:", "convert the file to UTF-8 first"),
        ("path: a.csv, encoding: gb18030", "encoding:", "convert the file to UTF-8 first"),
        ("path: a.csv, encoding: cp500", "encoding:", "convert the file to UTF-8 first"),
        ("path: a.csv, encoding: base64", "encoding:", "write one such as utf-8, latin-1"),
        ("path: a.csv, format: excel", "format:", "must be one of 'csv', 'parquet' or 'arrow'"),
        ('path: ""', "path:", "is empty"),
        ("path: 7", "path:", "must be text"),
        ("pth: a.csv", "pth:", "did you mean `path`"),
        (f"url: postgresql://u:{SECRET}@h/d", "url:", "did you mean `url_env`"),
        (f"sql: select 1, url_env: postgresql://u:{SECRET}@h/d", "url_env:", "must be the name of an environment variable"),
        (f"path: s3://key:{SECRET}@bucket/a.csv", "path:", "contains a password or key"),
        (f"path: https://{SECRET}@host/a.csv", "path:", "contains a password or key"),
        (f"path: 'https://host/a.csv?X-Amz-Signature={SECRET}'", "path:", "contains a password or key"),
        (f"path: 'https://host/a.csv?sv=1&sig={SECRET}'", "path:", "contains a password or key"),
        (f"path: 'az://c/a.csv?account_key={SECRET}'", "path:", "contains a password or key"),
        (f"path: postgresql://u:{SECRET}@h/d", "path:", "or `sql` for a database"),
        (f"path: 'simplecache::s3://{SECRET}/a.csv'", "path:", "must be a single URL"),
        ("path: 'visits/*/../a.csv'", "path:", "after a pattern"),
        ("path: 'visits/[a]/..'", "path:", "after a pattern"),
        ('path: "visits/*\\n/../a.csv"', "path:", "after a pattern"),
        ('path: "visits/*/x\\r\\n/.."', "path:", "after a pattern"),
        (f"path: 's3://key:{SECRET}@[bucket/a.csv'", "path:", "is not a valid URL"),
        (f"path: 's3://a[{SECRET}]/a.csv'", "path:", "is not a valid URL"),
        ("path: nosuch://a.csv", "path:", "starts with an unsupported URL scheme"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_place_its_remedy_and_no_secret(
    tmp_path: Path, source: str, token: str, hint: str
) -> None:
    path = write(tmp_path, source)
    with pytest.raises(SpecError) as refusal:
        load_spec(path)
    (told,) = [line for line in str(refusal.value).splitlines() if hint in line]
    line = path.read_text(encoding="utf-8").splitlines()[1]
    assert f"spec.yaml:2:{line.index(token) + 1}: " in told
    assert SECRET not in str(refusal.value)
    assert refusal.value.__context__ is None
    assert refusal.value.__cause__ is None


def test_a_spec_without_a_source_is_refused_unless_a_table_is_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("source: {SOURCE}\n", ""), encoding="utf-8")
    with pytest.raises(SpecError, match=r"`source` is missing; write `source: \{path: visits\.csv\}`"):
        load_spec(path)
    assert load_spec(path, with_table=True).spec.source.path is None
    path = write(tmp_path, "pth: a.csv")
    with pytest.raises(SpecError, match="did you mean `path`"):
        load_spec(path, with_table=True)


def test_what_a_source_says_is_part_of_the_digest(tmp_path: Path) -> None:
    sources = (
        "path: a.csv",
        "path: b.csv",
        "path: a.csv, format: csv",
        "sql: select 1, url_env: X",
        "sql: select 1, url_env: Y",
    )
    assert len({load_spec(write(tmp_path, source)).digest for source in sources}) == len(sources)
