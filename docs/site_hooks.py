# SPDX-License-Identifier: Apache-2.0
"""Shapes the site while mkdocs builds it: first screen, notebooks, the list of all names, the order of search results.

``mkdocs.yml`` names this file under ``hooks``. The repository's own pages stay plain Markdown.
"""

from __future__ import annotations

import json
import pkgutil
import re
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

DOCS = Path(__file__).parent
HERO = DOCS / "hero.html"
GALLERY = "examples/gallery/"
# Readers look for a user's page first; measurements come after all of these.
LATER = {
    "benchmarks/": 0.01,
    "CHANGELOG.md": 0.02,
    "docs/reference": 0.5,
    "docs/privacy.md": 0.3,
}
FIRST = {"docs/tables.md": 3.0, "docs/policy.md": 3.0, "docs/scorecards.md": 1.5, "docs/linear.md": 1.5}

_shown: dict[str, str] = {}  # what cells of notebooks show, by the mark that stands for it


def on_files(files: Files, config: Any) -> Files:
    """Adds a page for each notebook of the gallery."""
    from mkdocs.structure.files import File

    for file in [file for file in files if file.src_uri.startswith(GALLERY) and file.src_uri.endswith(".ipynb")]:
        notebook = json.loads(Path(file.abs_src_path or "").read_text(encoding="utf-8"))
        name = file.src_uri.removesuffix(".ipynb")
        files.append(File.generated(config, f"{name}.md", content=_markdown(notebook, Path(name).name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Puts the first screen above the README, and weighs each page for the search."""
    source = page.file.src_uri
    for weights in (LATER, FIRST):
        for start, weight in weights.items():
            if source.startswith(start):
                page.meta["search"] = {"boost": weight}
    if source.startswith("docs/decisions/"):  # the records stay in the repository, and links to them work
        page.meta["search"] = {"exclude": True}
    if source in ("README.md", "docs/gallery.md"):
        markdown = re.sub(rf"\(((?:\.\./)?{GALLERY}[\w-]+)\.ipynb\)", r"(\1.md)", markdown)
    if source == "README.md":
        markdown = markdown.replace("# pinq-miners\n", "# pinq-miners { .hidden }\n\n" + _hero(), 1)
    return index(markdown) if source == "docs/reference.md" else markdown


def index(markdown: str) -> str:
    """Puts under each page of the reference the names that it shows, each with the first line of its docstring."""

    def listed(heading: re.Match[str]) -> str:
        page = heading[1]
        names = re.findall(r"^::: (\S+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        lines = [(name, (pkgutil.resolve_name(name).__doc__ or "").splitlines()[0]) for name in names]
        entries = (f"- [`{name.rpartition('.')[2]}`]({page}#{name}): {line.replace('``', '`')}" for name, line in lines)
        return "\n".join([heading[0], "", *entries])

    return re.sub(r"^## \[.*\]\((.*)\)$", listed, markdown, flags=re.MULTILINE)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Puts what cells show in the place of their marks."""
    if page.file.src_uri.startswith(GALLERY):
        html = re.sub(r"<p>@@([\w-]+)@@</p>", lambda mark: _shown[mark[1]], html)
    return html


def _hero() -> str:
    """The first screen, its code in the colours of all other code."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    before, code, after = re.split("<pre><code>|</code></pre>", HERO.read_text(encoding="utf-8"))
    coloured = highlight(unescape(code), PythonLexer(), HtmlFormatter(nowrap=True)).rstrip()
    shown = f'{before}<div class="highlight"><pre><code>{coloured}</code></pre></div>{after}'
    return re.sub(r"\n\s*\n", "\n", shown) + "\n"


def _markdown(notebook: dict[str, Any], name: str) -> str:
    """Writes a notebook as a page; a mark stands for each output."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        shell = source.startswith("!")
        parts.append(f"```{'console' if shell else 'python'}\n{source.replace('!pinq', '$ pinq')}\n```")
        for output in cell["outputs"]:
            mark = f"{name}-{len(_shown)}"
            _shown[mark] = _output(output)
            parts.append(f"@@{mark}@@")
    file = f"[Notebook]({name}.ipynb): open it in Jupyter, in a clone."
    return "\n\n".join([*parts, file]) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"<p><img alt='' src='data:image/png;base64,{''.join(data['image/png']).strip()}'></p>"
    if "text/html" in data:
        return f"<div class='cell-output'>{''.join(data['text/html'])}</div>"
    text = escape("".join(output.get("text") or data["text/plain"]))
    return f"<pre class='cell-output'>{text}</pre>"
