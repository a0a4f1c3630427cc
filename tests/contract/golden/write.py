# SPDX-License-Identifier: Apache-2.0
"""Wrote the golden files of this folder, once. Kept to say how they came about; running it again would make other noise."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import miners
import pinq
from miners.distances.dilca import DPDilca
from miners.federated.federation import Federation
from pinq import (
    AbsoluteError,
    AnyCross,
    AnyCut,
    AnyGrouping,
    Balance,
    ClassCount,
    Cuts,
    EnoughRows,
    Gini,
    Groups,
    InfoGain,
    MaxClass,
    MutualInformation,
    Parts,
    Policy,
    Shards,
    SquaredError,
    Values,
)
from pinq.provider.local import open_ledger

HERE = Path(__file__).resolve().parent
COLUMNS: dict[str, Any] = {
    "sex": {"type": "categorical", "values": ["Female", "Male"]},
    "job": {"type": "categorical", "values": ["clerk", "nurse", "smith", "Bäcker", "01067"], "nullable": True},
    "smoker": {"type": "categorical", "values": [False, True]},
    "grade": {"type": "categorical", "values": [1, 2, 3]},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
    "rate": {"type": "numeric", "lower": -1.5, "upper": 2.5, "step": 0.125, "nullable": True},
    "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
}


def rows(count: int, seed: int = 1) -> pd.DataFrame:
    """Made-up rows in which income follows age, job and grade."""
    draw = np.random.default_rng(seed)
    job = draw.choice(["clerk", "nurse", "smith", "Bäcker", "01067", None], count)
    age, grade = draw.integers(0, 100, count), draw.integers(1, 4, count)
    rich = (age > 45) & (grade > 1) | (job == "smith") & (draw.random(count) < 0.7)
    rate = np.round(draw.uniform(-1.5, 2.5, count), 2)
    return pd.DataFrame(
        {
            "sex": draw.choice(["Female", "Male"], count),
            "job": job,
            "smoker": draw.random(count) < 0.3,
            "grade": grade,
            "age": age,
            "rate": pd.Series(rate).where(draw.random(count) < 0.9),
            "income": np.where(rich, ">50K", "<=50K"),
        }
    )


def ask(handle: Any) -> None:
    """Questions of every kind."""
    count = handle.noisy_count(epsilon=0.1)
    handle.noisy_count(epsilon=0.1, reuse=True)
    handle.noisy_sum("age", epsilon="0.25")
    handle.noisy_avg("rate", epsilon=0.5)
    handle.partition(Values("job"), Values("smoker")).noisy_count(epsilon=0.1)
    handle.partition(Cuts("age", [30, 45.0])).noisy_avg("rate", epsilon=0.1)
    handle.partition(Groups("job", [["clerk", None], ["smith", "Bäcker"]])).noisy_sum("rate", epsilon=0.1)
    handle.partition(Groups("smoker", [[True], [False]])).noisy_count(epsilon=0.1)
    handle.partition(Shards(4, key=7)).noisy_count(epsilon=0.1)
    handle.partition(Values("sex"))["Male"].noisy_count(epsilon=0.000000001)
    for score in (Gini("income"), InfoGain("income"), MaxClass("income"), MutualInformation("job")):
        handle.exp_mech([Values("sex"), Values("grade"), AnyCut("age"), AnyGrouping("grade")], score=score, epsilon=0.2)
    handle.exp_mech([Values("sex"), Cuts("age", [50])], score=MutualInformation(Cuts("rate", [0])), epsilon=0.2)
    handle.exp_mech([Values("sex"), Values("job")], score=SquaredError("age"), epsilon=0.2)
    handle.exp_mech([Values("sex"), Values("job")], score=AbsoluteError("age"), epsilon=0.2)
    handle.exp_mech([AnyCut("age")], score=Balance(), epsilon=0.2)
    handle.exp_mech(
        [AnyCross((Values("sex"), Values("job"), Cuts("age", [20, 60])), 2)],
        score=MutualInformation("income"),
        epsilon=0.2,
    )
    handle.exp_mech([], score=ClassCount("income"), epsilon=0.2)
    halves = handle.partition(Values("sex"))
    halves.exp_mech([[Values("job")], [AnyCut("age"), Values("grade")]], score=Gini("income"), epsilon=0.2)
    halves.exp_mech([Values("job"), AnyCut("age")], score=Gini("income"), epsilon=0.2, each=True)
    halves.exp_mech([Values("job"), AnyCut("age")], score=InfoGain("income"), epsilon=0.2, textbook=True)
    halves.partition(Values("grade")).exp_mech([], score=EnoughRows(least=10), epsilon=0.5)
    handle.partition((Values("sex"), Cuts("age", [40]))).noisy_count(epsilon=0.1)
    younger = handle.partition(Cuts("age", [40]))[0]
    Parts.union(younger.parts(), handle.partition(Cuts("age", [40]))[[1]]).noisy_count(epsilon=0.1)
    handle.partition(Values("rate")).noisy_count(epsilon=0.1)
    handle.partition(Values("sex"), Cuts("age", [40]), Values("grade")).noisy_avg("age", epsilon=0.1)
    handle.partition(Values("job")).exp_mech([], score=ClassCount("income"), epsilon=0.2)
    handle.partition(Values("grade")).exp_mech(
        [AnyGrouping("job", seed=3), (Values("sex"), Values("smoker"))], score=MaxClass("income"), epsilon=0.2
    )
    handle.partition(Shards(2))[[0]].noisy_sum("rate", epsilon=0.1)
    if count < 0:
        raise SystemExit("four hundred rows cannot be counted below zero at epsilon 0.1 but once in e^40 times")


def refused(handle: Any) -> None:
    """Refusals of every kind."""
    for question in (
        lambda: handle.noisy_count(epsilon=900),
        lambda: handle.partition(Values("job")).noisy_count(epsilon=0.01),
        lambda: handle.noisy_sum("age", epsilon=0.01),
        lambda: handle.noisy_count(epsilon=0.9),
    ):
        try:
            question()
        except pinq.PinqError:
            continue
        raise SystemExit("this should have been refused")


def write_ledger(folder: Path) -> None:
    """The ledger, what it says, and what crossed the wall."""
    policy = Policy(dataset="golden", cap=1000, max_rows=1000, columns=COLUMNS, folder=folder)
    ledger = open_ledger(policy)
    from pinq.ledger.grants import Terms

    ledger.grant("ana", 100 * 10**9)
    ledger.grant(
        "bob",
        10**9,
        datetime(2100, 1, 1, tzinfo=UTC),
        terms=Terms(5 * 10**8, ("sex", "age"), ("noisy_count",), 1000),
        token="ab" * 32,
    )
    ledger.grant("carl", 2 * 10**9)
    ledger.close()
    data = rows(400)
    ask(pinq.open(policy, analyst="ana", data=data))
    handle = pinq.open(policy, analyst="bob", data=data)
    handle.partition(Values("sex")).noisy_count(epsilon=0.25)
    refused(handle)
    ledger = open_ledger(policy)
    ledger.extend("bob", 10**8, datetime(2101, 1, 1, tzinfo=UTC))
    ledger.set_terms("bob", Terms(queries_per_minute=3))
    ledger.set_token("bob", "cd" * 32)
    ledger.revoke("carl")
    ledger.verify()
    grants = {
        name: {
            "limit": grant.limit,
            "spent": grant.spent,
            "remaining": grant.remaining,
            "revoked": grant.revoked,
            "token": grant.token,
            "expires": grant.expires.isoformat() if grant.expires else None,
            "terms": grant.terms.to_body(),
        }
        for name, grant in ledger.grants().items()
    }
    events = list(ledger.events())
    spent, cap = ledger.joint()
    balances = {
        "grants": grants,
        "joint": spent,
        "cap": cap,
        "events": len(events),
        "hash": events[-1].hash,
        "digest": policy.schema_.digest,
    }
    (HERE / "balances.json").write_text(json.dumps(balances, indent=1) + "\n")
    exchanges = []
    for analyst in ("ana", "bob"):
        for identity, payload in ledger.payloads(analyst).items():
            charge, _ = ledger.answer_of(analyst, identity)
            assert charge is not None
            exchanges.append(
                {
                    "analyst": analyst,
                    "id": identity,
                    "request": ASKED[identity],
                    "about": charge.body["about"],
                    "question": charge.body["question"],
                    "answer": payload,
                }
            )
    (HERE / "exchanges.json").write_text(json.dumps(exchanges, indent=1, ensure_ascii=False) + "\n")
    url = ledger.url.removeprefix("sqlite:///")
    ledger.close()
    import sqlite3

    (HERE / "ledger.sqlite3").unlink(missing_ok=True)

    connection = sqlite3.connect(url)
    connection.execute("VACUUM INTO ?", (str(HERE / "ledger.sqlite3"),))
    connection.close()


ASKED: dict[str, str] = {}


def remember_requests() -> None:
    """Keeps the text of every request that reaches a curator."""
    from pinq.curator.monitor import Curator

    asked = Curator.ask

    def ask(self: Curator, analyst: str, request: Any) -> Any:
        ASKED[request.id] = request.to_json()
        return asked(self, analyst, request)

    Curator.ask = ask  # type: ignore[method-assign]


def write_models(folder: Path) -> None:
    """One fitted model of each miner, and its predictions."""
    (HERE / "models").mkdir(exist_ok=True)
    held_out = rows(25, seed=2)
    (HERE / "rows.json").write_text(held_out.to_json(orient="records", force_ascii=False) + "\n")

    def handle(name: str, seed: int = 1) -> Any:
        place = folder / name
        place.mkdir()
        policy = Policy(dataset=name.lower(), cap=1000, max_rows=1000, columns=COLUMNS, folder=place)
        ledger = open_ledger(policy)
        ledger.grant("ana", 100 * 10**9)
        ledger.close()
        return pinq.open(policy, analyst="ana", data=rows(800, seed=seed))

    for name in (
        "DiffPC45",
        "DiffPID3",
        "SuLQID3",
        "DPDecisionForest",
        "DPExtraTrees",
        "DiPriMeTreeClassifier",
        "DiPriMeForestClassifier",
    ):
        keep(small(name), handle(name), "income", held_out)
    for name in ("DPExtraTreesRegressor", "DiPriMeTreeRegressor", "DiPriMeForestRegressor"):
        keep(small(name), handle(name), "age", held_out)
    holders = Federation([handle(f"holder{number}", seed=number) for number in (3, 4)])
    keep(miners.DPTopDown(epsilon=4), holders, "income", held_out)
    distances = DPDilca(epsilon=8).fit(handle("DPDilca"), "job")
    (HERE / "models" / "DPDilca.json").write_text(json.dumps({"model": distances.to_json()}, ensure_ascii=False) + "\n")


def small(name: str) -> Any:
    """A miner by name; a forest of three trees."""
    miner = getattr(miners, name)(epsilon=4)
    return miner.set_params(n_estimators=3) if "n_estimators" in miner.get_params() else miner


def keep(miner: Any, handle: Any, target: str, held_out: pd.DataFrame) -> None:
    """A model's JSON and what it predicts."""
    miner.fit(handle, target)
    kept = {"model": miner.to_json(), "predicted": np.asarray(miner.predict(held_out)).tolist()}
    (HERE / "models" / f"{type(miner).__name__}.json").write_text(json.dumps(kept, ensure_ascii=False) + "\n")


def write_names() -> None:
    """Both packages' public names."""
    (HERE / "names.json").write_text(
        json.dumps({"pinq": sorted(pinq.__all__), "miners": sorted(miners.__all__)}, indent=1) + "\n"
    )


def main() -> None:
    """Writes everything but ``demo.json``, which follows ``make demo``."""
    warnings.simplefilter("ignore")
    remember_requests()
    folder = Path(tempfile.mkdtemp())
    write_ledger(folder)
    write_models(folder)
    write_names()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
