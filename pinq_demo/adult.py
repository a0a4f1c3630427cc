# SPDX-License-Identifier: Apache-2.0
"""The main job on UCI Adult, from a policy to an audit: ``pinq demo``.

A provider grants a budgeted handle, an analyst mines a tree through it, the budget runs out, and the
audit shows it. The table and its policy come with the package.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pinq.cli.base import guarded
from pinq.errors import QueryError
from pinq.public.plugins import install_line

if TYPE_CHECKING:
    import pandas as pd

    import pinq
    from miners import DiffPC45

HERE = Path(__file__).resolve().parent
TARGET = "income"
KINDS = ("adult.*", "proposed.yaml", "tree.*", "audit.html")


def missing() -> QueryError:
    """Returns the error where a package is missing, with two ways to run the demo."""
    line = install_line("demo")
    package = line[line.index("'") :]
    return QueryError(
        f"The demo needs the provider's side, pictures and scikit-learn: {line}; "
        f"or, without an installation: uvx --from {package} pinq-miners demo"
    )


@guarded
def demo(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="The folder for all files that the demo makes.")
    ] = Path("pinq-demo"),
) -> None:
    """Play all roles on the public Adult table: policy, grant, tree, exhaustion, audit."""
    begun = time.perf_counter()
    try:
        import matplotlib as mpl
        import sklearn.tree  # noqa: F401

        import pinq.provider.local
    except ModuleNotFoundError:
        raise missing() from None
    mpl.use("agg")
    folder = empty(folder.resolve())
    held_out = split_rows(folder)

    title("1. The provider writes a policy")
    proposed = shell(folder, "init", "adult.parquet", "--target", TARGET, show=False)
    (folder / "proposed.yaml").write_text(proposed, encoding="utf-8")
    say("The proposal took its domains from the rows, so it waits for review, and an unreviewed policy does not open:")
    shell(folder, "grant", "proposed.yaml", "analyst1", "--epsilon", "2", fails=True)
    review(folder / "adult.yaml")
    say("The provider replaces the proposed domains by UCI's documentation of each column:")
    shell(folder, "check", "adult.yaml")

    title("2. The provider grants a budget")
    shell(folder, "grant", "adult.yaml", "analyst1", "--epsilon", "2")

    title("3. The analyst opens the handle and looks around")
    handle = pinq.open(folder / "adult.yaml", analyst="analyst1")
    say(repr(handle))
    by_sex = handle.partition(pinq.Values("sex"), pinq.Values(TARGET))
    say(f"A 2 x 2 table for epsilon 0.1 in all: {by_sex.preview('noisy_count', epsilon=0.1).error}.")
    say(by_sex.frame(by_sex.noisy_count(epsilon=0.1)).to_string(index=False))
    say(f"Average hours per week: {handle.noisy_avg('hours_per_week', epsilon=0.1):.2f} (epsilon 0.1)")

    mine(handle, held_out, folder)
    spend_the_rest(handle)

    title("6. The auditor reads the log")
    shell(folder, "audit", "adult.yaml")
    shell(folder, "audit", "adult.yaml", "--html", "-o", "audit.html", show=False)

    title(f"The files in {shown(folder)}")
    for name in ("tree.png", "tree.txt", "tree.json", "audit.html", "adult.yaml"):
        say(f"  {name}")
    say(f"\nDone in {time.perf_counter() - begun:.0f} s.")


def empty(folder: Path) -> Path:
    """Makes a folder, or removes what an earlier demo left in it.

    Raises:
        QueryError: It holds something else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    others = [file.name for file in folder.iterdir() if not any(file.match(kind) for kind in KINDS)]
    if others:
        raise QueryError(f"{folder} holds {others[0]!r}, which the demo did not make. Name an empty folder: --folder.")
    for file in folder.iterdir():
        file.unlink()
    return folder


def mine(handle: pinq.PrivateQueryable, held_out: pd.DataFrame, folder: Path) -> None:
    """Learns a tree, and saves it as text, JSON and a picture."""
    from miners import DiffPC45

    title("4. The analyst mines a tree")
    miner = DiffPC45(epsilon=1.0)
    say(repr(miner.plan(handle.schema, TARGET)))
    started = time.perf_counter()
    miner.fit(handle, TARGET)
    seconds = time.perf_counter() - started
    say(f"Fitted in {seconds:.2f} s. It cost epsilon {float(miner.cost_):g}; the budget is now {handle.budget}.")
    compare(miner, held_out, folder)
    (folder / "tree.txt").write_text(miner.export_text(), encoding="utf-8")
    (folder / "tree.json").write_text(miner.to_json(), encoding="utf-8")
    figure: Any = miner.plot(max_depth=2).figure
    figure.savefig(folder / "tree.png", dpi=120, bbox_inches="tight")
    lines = miner.export_text().splitlines()
    say("\n".join(lines[:24]) + (f"\n... {len(lines) - 24} more lines in tree.txt" if len(lines) > 24 else ""))


def spend_the_rest(handle: pinq.PrivateQueryable) -> None:
    """Queries counts until the budget is exhausted."""
    import pinq

    title("5. The budget runs out")
    while True:
        try:
            rows = handle.noisy_count(epsilon=0.3)
        except pinq.BudgetExceeded as error:
            say(f"Refused: {error}")
            break
        say(f"About {rows:,} rows (epsilon 0.3; {float(handle.budget.remaining):g} remains)")


def split_rows(folder: Path) -> pd.DataFrame:
    """Gives three quarters of the rows to the provider. Returns the rest, to test on."""
    import numpy as np
    import pandas as pd

    rows = pd.read_parquet(HERE / "adult.parquet")
    order = np.random.default_rng(2010).permutation(len(rows))
    kept = len(rows) * 3 // 4
    rows.iloc[order[:kept]].to_parquet(folder / "adult.parquet", index=False)
    return rows.iloc[order[kept:]].reset_index(drop=True)


def review(policy_file: Path) -> None:
    """Writes the reviewed policy: the package's declarations of columns, with this demo's file and cap."""
    import yaml

    policy = yaml.safe_load((HERE / "adult.yaml").read_text(encoding="utf-8"))
    policy |= {"source": "adult.parquet", "cap": 5}
    policy_file.write_text(yaml.safe_dump(policy, sort_keys=False, allow_unicode=True, width=110), encoding="utf-8")


def compare(miner: DiffPC45, held_out: pd.DataFrame, folder: Path) -> None:
    """Prints accuracies on the held-out rows, also of an exact tree of the same depth."""
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.tree import DecisionTreeClassifier

    rows = pd.read_parquet(folder / "adult.parquet")  # an analyst could not read them; the demo is the provider too
    names = rows.select_dtypes(exclude="number").columns.drop(TARGET)
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), list(names)), remainder="passthrough")
    exact = make_pipeline(encode, DecisionTreeClassifier(max_depth=5, random_state=0)).fit(
        rows.drop(columns=TARGET), rows[TARGET]
    )
    features, truth = held_out.drop(columns=TARGET), held_out[TARGET]
    say(f"\nAccuracy on {len(held_out):,} held-out rows:")
    say(f"  DiffPC45, epsilon 1        {miner.score(features, truth):.3f}")
    say(f"  scikit-learn, not private  {exact.score(features, truth):.3f}")
    say(f"  always the larger class    {truth.value_counts(normalize=True).max():.3f}\n")


def shell(folder: Path, *words: str, show: bool = True, fails: bool = False) -> str:
    """Runs ``pinq`` in the folder as a user would. Stops the demo if it fails, or if it should fail and does not."""
    if show:
        say(f"$ pinq {' '.join(words)}")
    command = [sys.executable, "-m", "pinq.cli.main", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if show:
        say(done.stdout + done.stderr)
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def shown(path: Path) -> str:
    """Returns a path relative to the current folder, or the whole path of a file elsewhere."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def title(text: str) -> None:
    """Begins a section."""
    print(f"\n{text}\n{'=' * len(text)}\n", flush=True)


def say(text: str) -> None:
    """Prints a line."""
    print(text, flush=True)
