# SPDX-License-Identifier: Apache-2.0
"""The site: every page is in its navigation, nothing is fetched from elsewhere, no link is dead."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import miners
import miners.fronts.sql
import miners.statistics
import miners.tables
import pinq
from tests.support.house.checkout import ROOT

CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Links(HTMLParser):
    """What a page leads to and fetches, and the places that others may lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes one element."""
        values = {name: value or "" for name, value in attrs}
        self.places.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in FETCHED and FETCHED[tag] in values and values.get("rel") != "canonical":
            self.fetched.append(values[FETCHED[tag]])


def test_the_site_fetches_no_fonts() -> None:
    """The theme's fonts come from elsewhere, so they are off; dead links stop a build."""
    assert re.search(r"^  font: false", CONFIGURATION, flags=re.MULTILINE)
    assert re.search(r"^strict: true", CONFIGURATION, flags=re.MULTILINE)
    assert not re.search(r"https?://|analytics|extra_javascript", CONFIGURATION)


def test_every_page_is_in_the_navigation() -> None:
    """A page that nobody can reach is not documentation; decisions have an index of their own, by subject."""
    pages = [page for folder in ("", "start", "reference") for page in (ROOT / "docs" / folder).glob("*.md")]
    for page in pages:
        assert f"docs/{page.relative_to(ROOT / 'docs').as_posix()}\n" in CONFIGURATION, page.name
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    titles = [path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for path in decisions]
    lines = [f"- [{title}]({path.name})" for title, path in zip(titles, decisions, strict=True)]
    assert sorted(line for line in index.splitlines() if line.startswith("- ")) == sorted(lines)


def test_what_is_cited_is_this_version() -> None:
    """The citation file is well formed and names the version that is installed."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == pinq.__version__
    assert citation["cff-version"] == "1.2.0"
    assert all(citation[key] for key in ("title", "authors", "message"))
    assert all(reference["authors"] for reference in citation["references"])


def test_every_public_name_is_in_the_reference_with_an_example() -> None:
    """The reference shows each name's docstring, and a block that runs uses it."""
    page = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "docs" / "reference").glob("*.md"))
    examples = "".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE))
    for module in (pinq, miners, miners.tables, miners.statistics):
        for name in {*module.__all__, "open"} if module is pinq else module.__all__:
            # What one package has of the other is found in its own module by readers of source, as the site is.
            home = module.__name__ if (module, name) != (pinq, "sql") else miners.fronts.sql.__name__
            assert f"::: {home}.{name}\n" in page, name
            assert re.search(rf"\b{name}\b", examples), name


@pytest.mark.parametrize("package", [pinq, miners, miners.tables, miners.statistics])
def test_no_public_name_is_also_a_modules(package: ModuleType) -> None:
    """Whoever reads `package.name`, the reference too, would have to guess which of the two is meant."""
    assert not {module.name for module in pkgutil.iter_modules(package.__path__)} & set(package.__all__)


def test_the_index_of_the_reference_says_what_each_name_is() -> None:
    """Whatever a page of the reference shows is in the site's index once, with the first line of its docstring."""
    docs = ROOT / "docs"
    index = runpy.run_path(str(docs / "site_hooks.py"))["index"]((docs / "reference.md").read_text(encoding="utf-8"))
    for file in (docs / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
            first = pkgutil.resolve_name(name).__doc__.splitlines()[0].replace("``", "`")
            entry = f"- [`{name.rpartition('.')[2]}`]({file.relative_to(docs).as_posix()}#{name}): {first}\n"
            assert f"{index}\n".count(entry) == 1, entry


def test_what_a_page_means_is_what_the_site_shows() -> None:
    """Lists and tables need an empty line above them, what is in a list four spaces, and no script draws formulas."""
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"^ {1,3}```", text, flags=re.MULTILINE), page.name
        for above, line in pairwise(text.splitlines()):
            follows = above.strip() and not re.match(r"\s|[-*|] ?|\d+\. |<!--", above)
            assert not (follows and re.match(r"- |\* |\d+\. |\|", line)), f"{page.name}: {line}"
            assert not re.search(r"\$\S[^`$]*\$", line.replace("`$", "")), f"{page.name}: {line}"


def test_every_miner_has_a_page_of_one_shape() -> None:
    """When to take it and when not, a picture, and a table of what was measured."""
    index = (ROOT / "docs" / "miners.md").read_text(encoding="utf-8")
    names = {name for name in miners.__all__ if hasattr(getattr(miners, name), "from_json")} - {"Tree", "Forest"}
    assert not [name for name in names if f"`{name}`" not in index]
    pages = set(re.findall(r"^\|.*\]\((\w+\.md)#?[\w-]*\) \|$", index, flags=re.MULTILINE))
    assert len(pages) == 8
    for name in pages:
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert "\n## When, and when not\n" in page, name
        assert "![" in page, name
        (measured,) = re.findall(r"^## Measured\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE)
        assert "|---|" in measured, name


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="make docs installs mkdocs")
def test_the_built_site_stands_alone(tmp_path: Path) -> None:
    """Nothing is fetched from another site, and every link of every page leads somewhere."""
    subprocess.run(
        ["make", "site", f"SITE_FOLDER={tmp_path}", f"BIN={Path(sys.executable).parent}"], cwd=ROOT, check=True
    )
    pages: dict[Path, Links] = {}
    for file in (tmp_path / "site").rglob("*.html"):
        pages[file] = Links()
        pages[file].feed(file.read_text(encoding="utf-8"))
    assert len(pages) > 60
    for file, page in pages.items():
        assert not [address for address in page.fetched if urlsplit(address).netloc], file
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or file.name == "404.html":
                continue
            target = Path(os.path.normpath(file.parent / unquote(parts.path))) if parts.path else file
            assert target.exists(), f"{file}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].places, f"{file}: {link}"
