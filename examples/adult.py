# SPDX-License-Identifier: Apache-2.0
"""The main job on UCI Adult, from a policy to an audit.

A provider grants a budgeted handle, an analyst mines a tree through it, the budget runs out, and the
audit shows it.

Run with ``make demo``. Everything it writes is in ``build/demo``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import pinq
from miners import DiffPC45

HERE = Path(__file__).resolve().parent.parent
FOLDER = HERE / "build" / "demo"
POLICY = FOLDER / "adult.yaml"
TARGET = "income"


def main() -> None:
    """Runs the whole job."""
    begun = time.perf_counter()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    held_out = split_rows()

    title("1. The provider writes a policy")
    proposed = shell("pinq", "init", str(FOLDER / "adult.parquet"), "--target", TARGET, show=False)
    (FOLDER / "proposed.yaml").write_text(proposed, encoding="utf-8")
    say("The proposal took its domains from the rows, so it waits for review, and an unreviewed policy does not open:")
    shell("pinq", "grant", str(FOLDER / "proposed.yaml"), "analyst1", "--epsilon", "2", fails=True)
    review()
    say("The provider puts what UCI documents about each column in place of what was read off the rows:")
    shell("pinq", "check", str(POLICY))

    title("2. The provider grants a budget")
    shell("pinq", "grant", str(POLICY), "analyst1", "--epsilon", "2")

    title("3. The analyst opens the handle and looks around")
    handle = pinq.open(POLICY, analyst="analyst1")
    say(repr(handle))
    by_sex = handle.partition(pinq.Values("sex"), pinq.Values(TARGET))
    say(f"A 2 x 2 table for epsilon 0.1 in all: {by_sex.preview('noisy_count', epsilon=0.1).error}.")
    say(by_sex.frame(by_sex.noisy_count(epsilon=0.1)).to_string(index=False))
    say(f"Average hours per week: {handle.noisy_avg('hours_per_week', epsilon=0.1):.2f} (epsilon 0.1)")

    mine(handle, held_out)
    spend_the_rest(handle)

    title("6. The auditor reads the log")
    shell("pinq", "audit", str(POLICY))
    shell("pinq", "audit", str(POLICY), "--html", "-o", str(FOLDER / "audit.html"), show=False)

    title("What there is to look at")
    for name in ("tree.png", "tree.txt", "tree.json", "audit.html", "adult.yaml"):
        say(f"  {shown(FOLDER / name)}")
    say(f"\nDone in {time.perf_counter() - begun:.0f} s.")


def mine(handle: pinq.PrivateQueryable, held_out: pd.DataFrame) -> None:
    """Learns a tree, and writes it down as text, JSON and a picture."""
    title("4. The analyst mines a tree")
    miner = DiffPC45(epsilon=1.0)
    say(repr(miner.plan(handle.schema, TARGET)))
    started = time.perf_counter()
    miner.fit(handle, TARGET)
    seconds = time.perf_counter() - started
    say(f"Fitted in {seconds:.2f} s. It cost epsilon {float(miner.cost_):g}; the budget is now {handle.budget}.")
    compare(miner, held_out)
    (FOLDER / "tree.txt").write_text(miner.export_text(), encoding="utf-8")
    (FOLDER / "tree.json").write_text(miner.to_json(), encoding="utf-8")
    miner.plot(max_depth=2).figure.savefig(FOLDER / "tree.png", dpi=120, bbox_inches="tight")
    lines = miner.export_text().splitlines()
    say(
        "\n".join(lines[:24])
        + (f"\n... {len(lines) - 24} more lines in {shown(FOLDER / 'tree.txt')}" if len(lines) > 24 else "")
    )


def spend_the_rest(handle: pinq.PrivateQueryable) -> None:
    """Asks until the budget refuses."""
    title("5. The budget runs out")
    while True:
        try:
            rows = handle.noisy_count(epsilon=0.3)
        except pinq.BudgetExceeded as error:
            say(f"Refused: {error}")
            break
        say(f"About {rows:,} rows (epsilon 0.3; {pinq_remaining(handle)} remains)")


def split_rows() -> pd.DataFrame:
    """Gives three quarters of the rows to the provider. Returns the rest, to test on."""
    rows = pd.read_parquet(HERE / "data" / "adult.parquet")
    order = np.random.default_rng(2010).permutation(len(rows))
    kept = len(rows) * 3 // 4
    rows.iloc[order[:kept]].to_parquet(FOLDER / "adult.parquet", index=False)
    return rows.iloc[order[kept:]].reset_index(drop=True)


def review() -> None:
    """Writes the reviewed policy: columns as in ``policies/adult.yaml``, this demo's file, its cap."""
    policy = yaml.safe_load((HERE / "policies" / "adult.yaml").read_text(encoding="utf-8"))
    policy |= {"source": "adult.parquet", "cap": 5}
    POLICY.write_text(yaml.safe_dump(policy, sort_keys=False, allow_unicode=True, width=110), encoding="utf-8")


def compare(miner: DiffPC45, held_out: pd.DataFrame) -> None:
    """Prints accuracies on the held-out rows, also of an exact tree of the same depth."""
    rows = pd.read_parquet(FOLDER / "adult.parquet")  # only this demo can do that: it is the provider too
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


def pinq_remaining(handle: pinq.PrivateQueryable) -> str:
    """What remains, as a decimal number."""
    return f"{float(handle.budget.remaining):g}"


def shell(*command: str, show: bool = True, fails: bool = False) -> str:
    """Runs a command of this environment as a user would; stops the demo unless it ends as it should."""
    if show:
        print("$", " ".join(shown(Path(word)) if word.startswith("/") else word for word in command), flush=True)
    done = subprocess.run(
        [str(Path(sys.executable).parent / command[0]), *command[1:]], capture_output=True, text=True, check=False
    )
    if show:
        print(done.stdout + done.stderr)
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def shown(path: Path) -> str:
    """A path as seen from the project's folder."""
    return str(path.relative_to(HERE)) if path.is_relative_to(HERE) else str(path)


def title(text: str) -> None:
    """Begins a section."""
    print(f"\n{text}\n{'=' * len(text)}\n", flush=True)


def say(text: str) -> None:
    """Prints a line."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
