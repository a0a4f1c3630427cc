# SPDX-License-Identifier: Apache-2.0
"""Runs the notebooks of the gallery without Jupyter: ``python examples/gallery/run.py``.

A cell is Python whose last expression is shown, or lines ``!pinq ...`` that run the command. The
notebooks as they ran, and pages of HTML, go to ``build/gallery``; ``--keep`` writes what their cells
showed into the notebooks themselves.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import getpass
import io
import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
Notebook = dict[str, Any]
Output = dict[str, Any]


def notebooks() -> list[Path]:
    """Returns the notebooks, in the order of their names."""
    return sorted(HERE.glob("*.ipynb"))


@contextlib.contextmanager
def workshop() -> Iterator[None]:
    """Works where the notebooks lie; the copies that they make of policy and data go at the end."""
    before, temporary = Path.cwd(), tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        os.chdir(HERE)
        try:
            yield
        finally:
            os.chdir(before)
            tempfile.tempdir = temporary


def executed(notebook: Notebook) -> Notebook:
    """Returns a notebook with what its cells show. An error of a cell is raised."""
    mpl.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell = cell | {"execution_count": number, "outputs": _outputs("".join(cell["source"]), names)}
        cells.append(cell)
    return notebook | {"cells": cells}


def page(notebook: Notebook) -> str:
    """Returns a notebook as a page of HTML."""
    parts = []
    for cell in notebook["cells"]:
        source = escape("".join(cell["source"]))
        if cell["cell_type"] == "markdown":
            parts.append(f"<div style='white-space:pre-wrap;margin-top:1em'>{source}</div>")
            continue
        parts.append(f"<pre style='background:#f4f4f4;padding:.5em'>{source}</pre>")
        parts += [_html(output) for output in cell["outputs"]]
    body = "max-width:60em;margin:2em auto;font-family:sans-serif"
    return f"<!doctype html><meta charset='utf-8'><body style='{body}'>{''.join(parts)}"


def _outputs(source: str, names: dict[str, Any]) -> list[Output]:
    """Runs one cell; returns what it printed and what its last expression is."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run: Callable[[], object] = _commands(source) if source.startswith("!") else _python(source, names)
        shown = run()
    outputs: list[Output] = []
    if text := _anywhere(printed.getvalue()):
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if shown is not None:
        outputs.append({"output_type": "display_data", "metadata": {}, "data": _faces(shown)})
    return outputs


def _anywhere(text: str) -> str:
    """Returns a text without the folder, the user and the tokens of this very run."""
    text = text.replace(str(Path.cwd()), ".").replace(tempfile.gettempdir(), ".")
    text = re.sub(r"\bpinq_[\w-]{20,}", "pinq_...", text)
    return re.sub(rf"{re.escape(getpass.getuser())}@\S+", "provider@here", text)


def _commands(source: str) -> Callable[[], object]:
    """Returns what runs the commands of a cell in this process."""
    from typer.testing import CliRunner

    from pinq.cli.main import app

    def run() -> None:
        for line in source.splitlines():
            arguments = shlex.split(line.removeprefix("!pinq "), comments=True)
            result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
            print(result.output.rstrip())
            if result.exit_code:
                raise SystemExit(f"{line} ended with {result.exit_code}")

    return run


def _python(source: str, names: dict[str, Any]) -> Callable[[], object]:
    """Returns what runs a cell and gives the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None

    def run() -> object:
        exec(compile(tree, "cell", "exec"), names)
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None

    return run


def _faces(shown: Any) -> dict[str, Any]:
    """Returns a value as a notebook keeps it: a picture, HTML, and always text."""
    faces: dict[str, Any] = {"text/plain": repr(shown).splitlines(keepends=True)}
    if hasattr(shown, "get_figure"):
        picture = io.BytesIO()
        shown.figure.savefig(picture, format="png", dpi=80, bbox_inches="tight")
        return faces | {"image/png": base64.b64encode(picture.getvalue()).decode()}
    if hasattr(shown, "_repr_html_"):
        faces["text/html"] = shown._repr_html_().splitlines(keepends=True)
    return faces


def _html(output: Output) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"<img src='data:image/png;base64,{data['image/png']}'>"
    if "text/html" in data:
        return "".join(data["text/html"])
    return f"<pre>{escape(''.join(output.get('text') or data['text/plain']))}</pre>"


def main() -> None:
    """Runs all, and writes what they show."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true", help="write it into the notebooks too")
    keep, folder = parser.parse_args().keep, ROOT / "build" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for file in notebooks():
        with workshop():
            done = executed(json.loads(file.read_text(encoding="utf-8")))
        for place in (folder, HERE) if keep else (folder,):
            (place / file.name).write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / f"{file.stem}.html").write_text(page(done), encoding="utf-8")
        print(f"{file.name}: {sum(cell['cell_type'] == 'code' for cell in done['cells'])} cells")


if __name__ == "__main__":
    main()
