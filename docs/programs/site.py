"""MkDocs hooks: add the pages that are generated from the code, and keep every page from requesting anything of other hosts."""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
OUTSIDE = re.compile(r"https://(?=unpkg\.com/|api\.github\.com/|\$\{)")
"""URLs that the theme's script would load: a diagram library, a polyfill, statistics of a repository. We use none of these."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List all decisions in the navigation, in order."""
    decisions = [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("*.md"))]
    for section in config.nav or []:
        if "Explanation" in section:
            section["Explanation"].append({"Decisions": ["decisions/index.md", *decisions]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    if str(ROOT) not in sys.path:  # MkDocs loads this file by its path
        sys.path.insert(0, str(ROOT))
    from docs.programs import cli_page, notebook_page, spec_page  # noqa: PLC0415  see above

    pages = {
        "reference/cli.md": cli_page.page(),
        "reference/spec.md": spec_page.page(),
        "reference/results.md": _results(),
        "tutorial/sample-spec.md": _sample_spec(),
        "tutorial/judge-a-release.md": notebook_page.page(DOCS / "tutorial" / "judge-a-release.ipynb"),
        "decisions/index.md": _decisions(),
    }
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    for plot in sorted((ROOT / "benchmarks" / "plots").glob("*.svg")):
        files.append(File.generated(config, f"reference/plots/{plot.name}", abs_src_path=str(plot)))
    return files


def on_page_markdown(markdown: str, page: Page, **_others: object) -> str:
    """Replace links to project files outside the site by the names of the files. A link to a missing file is an error."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def named(link: re.Match[str]) -> str:
        text, target = link[1], posixpath.normpath(posixpath.join(folder, link[2]))
        if re.match(r"\w+:", link[2]) or target.startswith("docs/"):
            return link[0]
        if not (ROOT / target).exists():
            raise PluginError(f"{page.file.src_uri} links to {link[2]}, which does not exist")
        return f"`{target}`" if text.strip("`") in target else f"{text} (`{target}`)"

    return LINK.sub(named, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Remove other hosts from the theme's scripts, so that no feature of the theme can request anything of them."""
    for script in Path(config.site_dir).rglob("*.js"):
        text = script.read_text(encoding="utf-8")
        if OUTSIDE.search(text):
            script.write_text(OUTSIDE.sub("./removed/", text), encoding="utf-8")


def _results() -> str:
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    return text.replace("](../docs/", "](../").replace("# Measured", "# Results", 1)


def _sample_spec() -> str:
    text = (ROOT / "data" / "clinic-visits.yaml").read_text(encoding="utf-8")
    return f"# The sample's spec\n\nThe file `data/clinic-visits.yaml` of the project:\n\n```yaml\n{text}```\n"


def _decisions() -> str:
    lines = []
    for path in sorted((DOCS / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return (
        "# Decisions\n\nOne page each: what was decided, what was considered, and what was given up.\n\n"
        + "\n".join(lines)
        + "\n"
    )
