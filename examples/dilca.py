# SPDX-License-Identifier: Apache-2.0
"""Distances between categories on UCI Adult, and what people do with them.

They group values, compare records, classify by neighbours, cluster and draw pictures.

Run with ``python examples/dilca.py``. Everything it writes is in
``build/dilca-example``. The provider's part is as in ``examples/adult.py``; here a simulated handle
over three quarters of the rows stands for it, and the rest is the analyst's own records.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier

import pinq
from miners import DPDilca
from pinq import Values

mpl.use("Agg")
HERE = Path(__file__).resolve().parent.parent
FOLDER = HERE / "build" / "dilca-example"
TARGET = "income"


def main() -> None:
    """Runs everything."""
    options = argparse.ArgumentParser(description="distances between categories on UCI Adult")
    options.add_argument("--records", type=int, default=2000, help="how many own records are compared")
    records = options.parse_args().records
    FOLDER.mkdir(parents=True, exist_ok=True)
    private, own = split_rows(records)
    schema = pinq.load_policy(HERE / "policies" / "adult.yaml").schema_
    handle = pinq.simulate(schema, data=private, epsilon=3)

    title("1. Learn the distances between the values of every attribute")
    attributes = [name for name in schema.columns if name != TARGET]
    miner = DPDilca(method="max_dependency", k=3, epsilon=2, attributes=attributes)
    print(miner.plan(schema))
    miner.fit(handle)
    print(f"\nIt cost {float(miner.cost_):g}; {handle.budget}")
    print("context of education:", ", ".join(miner.context_["education"]))

    title("2. Group the values of an attribute")
    for number, values in miner.clusters("marital_status", 3).reset_index().groupby("cluster")["marital_status"]:
        print(f"  {number}: {', '.join(values)}")
    miner.plot("education").figure.savefig(FOLDER / "education.png", dpi=100)
    miner.plot_context().figure.savefig(FOLDER / "context.png", dpi=100)

    title("3. Compare records: the analyst's own, which never were behind the wall")
    half = len(own) // 2
    known, asked = own.head(half), own.iloc[half:]
    near = KNeighborsClassifier(5, metric="precomputed").fit(miner.pairwise(known), known[TARGET])
    print(f"5-NN with the learned distances   {near.score(miner.pairwise(asked, known), asked[TARGET]):.3f}")
    print(f"always the larger class           {(asked[TARGET] == known[TARGET].mode()[0]).mean():.3f}")
    ward = fcluster(linkage(squareform(miner.pairwise(asked), checks=False), method="ward"), 2, criterion="maxclust")
    print(f"Ward's clustering, adjusted Rand index with income {adjusted_rand_score(asked[TARGET], ward):.2f}")
    means = KMeans(2, n_init=4, random_state=0).fit(miner.transform(asked))
    print(f"k-means on the embedding, the same index {adjusted_rand_score(asked[TARGET], means.labels_):.2f}")

    title("4. k-means of the private table itself, over a few attributes")
    names = ["marital_status", "relationship", "sex"]
    few = DPDilca(method="max_relevance", epsilon=0.5, attributes=attributes).fit(handle, names)
    print(private_k_means(handle, few, names, clusters=3, epsilon=0.5).to_string(index=False))
    print(f"\n{handle.budget}; pictures are in {FOLDER.relative_to(HERE)}")


def private_k_means(
    handle: pinq.PrivateQueryable, miner: DPDilca, names: list[str], *, clusters: int, epsilon: float
) -> pd.DataFrame:
    """Finds clusters by one noisy table over all combinations of a few attributes.

    k-means runs on its cells, each of which weighs its noisy count. Everything after the table is
    post-processing, so any number of clusters and restarts costs nothing more.
    """
    table = handle.partition(*(Values(name) for name in names))
    cells = table.frame(table.noisy_count(epsilon=epsilon))
    weights = np.maximum(cells.pop("value").to_numpy(dtype=float), 0)
    clustering = KMeans(clusters, n_init=10, random_state=0).fit(miner.transform(cells), sample_weight=weights)
    total = cells.assign(cluster=clustering.labels_, rows=weights.round().astype(int))
    typical = total.sort_values("rows").groupby("cluster").tail(1).rename(columns={"rows": "rows of this"})
    return typical.merge(total.groupby("cluster")["rows"].sum().reset_index()).sort_values("rows", ascending=False)


def split_rows(records: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Splits off three quarters for the provider, and so many of the rest for the analyst."""
    rows = pd.read_parquet(HERE / "data" / "adult.parquet")
    order = np.random.default_rng(2021).permutation(len(rows))
    kept = len(rows) * 3 // 4
    return rows.iloc[order[:kept]], rows.iloc[order[kept : kept + records]].reset_index(drop=True)


def title(text: str) -> None:
    """Begins a section."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


if __name__ == "__main__":
    main()
