"""The site builds without a warning, has what it should have, and asks no other host for anything."""

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build as mkdocs_build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from playwright.sync_api import Browser

from docs.programs import cli_page, diagrams, spec_page
from dpcore.spec import json_schema
from tests.browser.chromium import launched, visiting
from tests.docs.outside import in_css, in_html, in_script, loads_in
from tests.docs.pages import ROOT, shell

VISITED = (
    "index.html",
    "tutorial/judge-a-release.html",
    "reference/api.html",
    "reference/results.html",
    "explanation/ledger.html",
)
POLICY = "default-src 'self' 'unsafe-inline'"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_builds_strictly_and_has_a_page_for_every_source(site: Path) -> None:
    sources = [path for path in (ROOT / "docs").rglob("*.md") if "programs" not in path.parts]
    assert len(sources) > 50
    for source in sources:
        assert (site / source.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), source
    for made in ("reference/cli", "reference/spec", "reference/results", "tutorial/judge-a-release", "decisions/index"):
        assert (site / f"{made}.html").is_file()
        assert not (ROOT / "docs" / f"{made}.md").exists()
    assert not (site / "programs").exists()


@pytest.mark.parametrize(
    ("link", "warnings"), [("", 0), ("[x](gone.md)", 1), ("[x](other.md#gone)", 1), ("[x](/absolute.md)", 1)]
)
def test_a_link_that_leads_nowhere_breaks_the_build(tmp_path: Path, link: str, warnings: int) -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# Home\n\n[fine](other.md#there) {link}\n", encoding="utf-8")
    (pages / "other.md").write_text("# Other\n\n## There\n", encoding="utf-8")
    small = {
        "site_name": "small",
        "strict": True,
        "docs_dir": str(pages),
        "plugins": [],
        "theme": "mkdocs",
        "validation": config["validation"],
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(small), encoding="utf-8")
    expectation = pytest.raises(Abort, match=f"Aborted with {warnings} warnings") if warnings else nullcontext()
    with expectation:
        mkdocs_build(load_config(str(tmp_path / "mkdocs.yml"), site_dir=str(tmp_path / "site")))


def test_no_file_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in {".html", ".css", ".js", ".svg"}]
    assert {path.suffix for path in files} == {".html", ".css", ".js", ".svg"}
    assert {path.name: found for path in files if (found := loads_in(path))} == {}


def test_every_page_tells_the_browser_to_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    assert [page for page in pages if POLICY not in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("find", "planted"),
    [
        (in_html, '<link rel="stylesheet" href="https://fonts.example/css?family=Roboto">'),
        (in_html, '<link href="//fonts.example" rel="preconnect">'),
        (in_html, '<script src="https://cdn.example/mermaid.js"></script>'),
        (in_html, '<script>import("https://cdn.example/mermaid.js")</script>'),
        (in_html, '<img srcset="a.png 1x, https://cdn.example/b.png 2x">'),
        (in_html, "<style>body{background:url(https://cdn.example/b.png)}</style>"),
        (in_html, "<p style=\"background:url('//cdn.example/b.png')\">"),
        (in_html, '<iframe src="HTTPS://video.example/1"></iframe>'),
        (in_html, '<form action="https://forms.example"></form>'),
        (in_html, '<meta http-equiv="refresh" content="0; url=https://else.example/">'),
        (in_css, '@import "https://fonts.example/css";'),
        (in_css, "@font-face{src:url( 'https://fonts.example/a.woff2' )}"),
        (in_script, 'fetch("https://api.example/stars")'),
        (in_script, "load(`https://unpkg.example/x`)"),
        (in_script, "new WebSocket('wss://live.example')"),
    ],
)
def test_what_would_be_loaded_is_noticed(find, planted: str) -> None:
    assert len(find(planted)) == 1


def test_what_is_only_linked_or_named_is_let_pass() -> None:
    assert (
        in_html('<a href="https://x.example">x</a><link rel="canonical" href="https://x.example"><img src="a.png">')
        == []
    )
    assert in_script('// see https://x.example\nelement("http://www.w3.org/2000/svg")') == []


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as started:
        yield started


def test_a_browser_reads_and_searches_the_site_and_asks_nobody_else(address: str, browser: Browser) -> None:
    with visiting(browser) as visitor:
        for page in VISITED:
            visitor.page.goto(f"{address}/{page}", wait_until="networkidle")
            assert visitor.page.locator("h1").count() == 1
        visitor.page.click("input[name=query]")
        visitor.page.keyboard.type("reservation")
        visitor.page.wait_for_selector(".md-search-result__item a")
        assert len(visitor.requests) > len(VISITED)
        assert visitor.outside == []


def test_a_page_that_asks_somebody_else_is_noticed_and_the_policy_stops_it(
    address: str, site: Path, browser: Browser
) -> None:
    image = '<img src="http://elsewhere.example/a.png">'
    page = (site / "index.html").read_text(encoding="utf-8")
    policy = page[page.index('<meta http-equiv="Content-Security-Policy"') :].partition(">")[0] + ">"
    (site / "planted.html").write_text(f"<!doctype html><body>{image}", encoding="utf-8")
    (site / "stopped.html").write_text(f"<!doctype html><head>{policy}</head><body>{image}", encoding="utf-8")
    for name, asked in (("planted", 1), ("stopped", 0)):
        with visiting(browser) as visitor:
            failed: list[str] = []
            visitor.page.on("console", lambda message, failed=failed: failed.append(message.text))
            visitor.page.goto(f"{address}/{name}.html", wait_until="networkidle")
            stopped = [text for text in failed if "Content Security Policy" in text]
            assert len(stopped) == 1 - asked
    for name in ("planted", "stopped"):
        (site / f"{name}.html").unlink()


def test_the_page_of_commands_has_every_verb_of_the_installed_command(tmp_path: Path) -> None:
    page = cli_page.page()
    listed = json.loads(shell(f"{sys.executable} -c '{_VERBS}'", ROOT))
    assert len(listed) > 25
    assert [verb for verb in listed if f"## `dpflow {verb}`" not in page] == []
    assert page.count("\n## ") == len(listed)


_VERBS = """
import json
from flows.cli import command
from docs.programs.cli_page import verbs
from dpcore.cli.main import parser
from dpcore.cli.verbs import VERBS
given = {}
command.cli.main = lambda **options: given.update(options) or 0
command.os._exit = lambda code: None
command.main()
root = verbs(parser(given["more"], loaded=[*VERBS, *given["more"]]))
print(json.dumps([*root, *(f"{name} {below}" for name, (one, _) in root.items() for below in verbs(one))]))
"""


def test_the_page_of_the_spec_has_every_key() -> None:
    page, schema = spec_page.page(), json_schema()
    keys = [key for part in [schema, *schema["$defs"].values()] for key in part.get("properties", {})]
    assert len(keys) > 60
    assert [key for key in keys if f"| `{key}` |" not in page] == []
    assert page.count("\n| `") == len(keys)


def test_a_model_without_a_heading_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(spec_page._HEADINGS, "EngineSpec")
    with pytest.raises(ValueError, match="EngineSpec"):
        spec_page.page()


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_a_diagram_is_what_its_program_draws(name: str) -> None:
    assert (diagrams.IMAGES / name).read_text(encoding="utf-8") == diagrams.DIAGRAMS[name].svg()
