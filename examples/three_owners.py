# SPDX-License-Identifier: Apache-2.0
"""One tree from three data owners, with a server, a policy and a ledger each.

No row leaves its owner, and each owner audits its own ledger.

Run with ``python examples/three_owners.py``. Everything it writes is in
``build/three-owners``.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import trustme
import yaml

import pinq
from miners import FederatedTopDown, Federation

HERE = Path(__file__).resolve().parent.parent
FOLDER = HERE / "build" / "three-owners"
TARGET = "income"
SHARES = {"north": 0.55, "south": 0.35, "west": 0.10}  # of the rows; nobody but the owner knows
CAPS = {"north": 3, "south": 2.5, "west": 2}  # each owner's own policy
MAX_ROWS = {"north": 25_000, "south": 15_000, "west": 5_000}
PINQ = str(Path(sys.executable).parent / "pinq")


def main() -> None:
    """Runs the whole job."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    held_out = split_rows()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(FOLDER / "authority.pem")

    title("1. Each owner writes a policy, grants a budget and serves its own table")
    with ExitStack() as stack:
        urls = {owner: stack.enter_context(serving(owner, authority)) for owner in SHARES}
        handles = {}
        for owner, url in urls.items():
            handles[owner] = stack.enter_context(
                pinq.connect(url, token=FOLDER / owner / "token", verify=FOLDER / "authority.pem")
            )
            print(f"{owner}: {url}, {handles[owner].budget!r}")

        title("2. The coordinator grows one tree")
        together = Federation(handles, on_failure="fail")
        miner = FederatedTopDown(epsilon=1.0)
        print(miner.plan(together.schema, TARGET, owners=len(handles)))
        started = time.perf_counter()
        miner.fit(together, TARGET)
        print(f"\nFitted in {time.perf_counter() - started:.1f} s.\n{miner.card_!r}")
        (FOLDER / "tree.txt").write_text(miner.export_text(), encoding="utf-8")
        (FOLDER / "tree.json").write_text(miner.to_json(), encoding="utf-8")

        title("3. What it is worth")
        alone = FederatedTopDown(epsilon=1.0).fit(handles["west"], TARGET)
        print(f"Accuracy on {len(held_out):,} held-out rows:")
        print(f"  three owners together     {miner.score(held_out):.3f}")
        print(f"  west alone, epsilon 1 too  {alone.score(held_out):.3f}")
        print(f"  always the larger class    {held_out[TARGET].value_counts(normalize=True).max():.3f}")
        for handle in handles.values():
            print(f"  {handle!r}")

    title("4. Each owner audits its own ledger")
    for owner in SHARES:
        print(f"{owner}:", *run("audit", FOLDER / owner / "census.yaml").splitlines()[:3], sep="\n  ")


def split_rows() -> pd.DataFrame:
    """Gives three quarters of Adult to the owners, each its own people. Returns the rest."""
    rows = pd.read_parquet(HERE / "data" / "adult.parquet")
    order = np.random.default_rng(2020).permutation(len(rows))
    taken = len(rows) * 3 // 4
    ends = (np.cumsum(list(SHARES.values())) * taken).round().astype(int)
    columns = yaml.safe_load((HERE / "policies" / "adult.yaml").read_text(encoding="utf-8"))
    for owner, begin, end in zip(SHARES, [0, *ends[:-1]], ends, strict=True):
        (FOLDER / owner).mkdir(parents=True)
        rows.iloc[order[begin:end]].to_parquet(FOLDER / owner / "census.parquet", index=False)
        policy = columns | {
            "dataset": "census",
            "source": "census.parquet",
            "cap": CAPS[owner],
            "max_rows": MAX_ROWS[owner],
        }
        (FOLDER / owner / "census.yaml").write_text(
            yaml.safe_dump(policy, sort_keys=False, allow_unicode=True, width=110), encoding="utf-8"
        )
    return rows.iloc[order[taken:]].reset_index(drop=True)


@contextmanager
def serving(owner: str, authority: trustme.CA) -> Iterator[str]:
    """One owner's server, with a certificate of its own; gives the URL of its table."""
    home, port = FOLDER / owner, free_port()
    token = run("grant", home / "census.yaml", "coordinator", "--epsilon", "2").split()[-1]
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(home / "key.pem")
    for number, certificate in enumerate(issued.cert_chain_pems):
        certificate.write_to_path(home / "cert.pem", append=number > 0)
    (home / "token").touch(mode=0o600)
    (home / "token").write_text(token, encoding="utf-8")
    command = [
        PINQ,
        "serve",
        home / "census.yaml",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--tls-cert",
        home / "cert.pem",
        "--tls-key",
        home / "key.pem",
    ]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
    try:
        wait_for(port, server)
        yield f"https://127.0.0.1:{port}/census"
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Waits until the server has encoded its table and listens; on a busy machine that takes long."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(f"A server did not start; what it says is in server.log under {FOLDER}.")


def run(*words: object) -> str:
    """A ``pinq`` command's output; stops the example where it fails."""
    done = subprocess.run([PINQ, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"pinq {' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def title(text: str) -> None:
    """Begins a section."""
    print(f"\n{text}\n{'=' * len(text)}\n", flush=True)


if __name__ == "__main__":
    main()
