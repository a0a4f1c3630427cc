# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
# (none of what it measures is installed beside pinq)
"""AIM and MST of dpmm on given cells; runs in the peers' interpreter.

``python synthesizer_peers.py FILE`` reads ``codes`` (the cell of each row in each column) and ``sizes`` from
FILE, and one request from standard input: ``{"model": "AIM", "epsilon": 1, "run": 0}``. It writes as many
synthetic rows into FILE.npy and prints the seconds of the processor. The cells are given, so nothing is
spent on them. Models are at (epsilon, DELTA) and get ``STEPS`` steps of inference for each fit, as dpmm's AIM has
by default; its MST has ten times as many, which take ten times as long.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline

DELTA = 1e-6
STEPS = 1000


def synthetic(codes: np.ndarray, sizes: list[int], model: str, epsilon: float, run: int) -> np.ndarray:
    """As many rows as were given, of a model of them."""
    frame = pd.DataFrame(codes, columns=[f"c{number}" for number in range(len(sizes))])
    kind = {"AIM": AIMPipeline, "MST": MSTPipeline}[model]
    options = {"disable_processing": True, "n_jobs": 1, "max_model_size": 80, "gen_kwargs": {"n_iters": STEPS}}
    pipeline = kind(epsilon=epsilon, delta=DELTA, **options)
    pipeline.fit(frame, domain=dict(zip(frame.columns, sizes, strict=True)), random_state=run)
    return pipeline.generate(n_records=len(codes), random_state=run)[list(frame.columns)].to_numpy(int)


def main() -> None:
    """Answers one request."""
    warnings.simplefilter("ignore")
    file, asked = sys.argv[1], json.load(sys.stdin)
    with np.load(file) as given:
        codes, sizes = given["codes"], given["sizes"].tolist()
    start = time.process_time()
    np.save(f"{file}.npy", synthetic(codes, sizes, **asked))
    print(json.dumps({"CPU s": time.process_time() - start}))


if __name__ == "__main__":
    main()
