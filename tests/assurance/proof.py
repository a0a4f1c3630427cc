# SPDX-License-Identifier: Apache-2.0
"""``make prove``: Coq checks ``proofs/Ledger.v``, and its kernel recomputes what the product charges for random logs.

Run: python -m tests.assurance.proof [LOGS]. The kernel is the part of Coq that decides what is a proof. It computes each
total by the very definitions of which the theorems speak, and shares no code with the product.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pinq.ledger.composition import Costs, Demand
from pinq.public.epsilon import Epsilon
from tests.support.house.checkout import ROOT
from tests.support.requests.random_demands import demand

PROOF = ROOT / "proofs" / "Ledger.v"
SEED = 20261128
ANALYSTS = range(3)
AT_A_TIME = 500
REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
"""What Coq's library assumes of real numbers; theorems about whole numbers need none of it."""
CHECK = """From Pinq Require Import Ledger. From Coq Require Import List NArith. Import ListNotations. Open Scope N_scope.
Definition l (who version : N) (pi : path) (e : N) := Line who (At None 0 version) pi e.
Definition totals (L : ledger) := spent L :: spent_by_sum L :: map (fun a => spent (of a L)) [0; 1; 2].
Definition right (c : ledger * list N) : bool := if list_eq_dec N.eq_dec (totals (fst c)) (snd c) then true else false.
Definition wrong (c : ledger * list N) :=
  let bad := N.to_nat (hd 0 (snd c) mod 5) in
  (fst c, firstn bad (snd c) ++ map N.succ (firstn 1 (skipn bad (snd c))) ++ skipn (S bad) (snd c)).
"""


def entries(who: int, version: int, asked: Demand, epsilon: int, names: dict[bytes, int]) -> list[str]:
    """One line for each block of a demand, as the proof writes them: the path to the part, and epsilon."""
    paths = [""]
    for parent, split, key in asked.nodes:
        step = f"({names.setdefault(split, len(names))},{names.setdefault(key, len(names))})"
        paths.append(f"{paths[parent]};{step}" if paths[parent] else step)
    return [f"l {who} {version} [{paths[node]}] {epsilon}" for node, _ in asked.asked]


def case(draw: random.Random) -> str:
    """A random log of several versions, and what the product says that it cost: all of it, the sum that the cap counts, and each analyst."""
    own, union = [Costs() for _ in ANALYSTS], Costs()
    names, log = dict[bytes, int](), list[str]()
    for _ in range(draw.randint(1, 10)):
        who, asked, loss = (
            draw.choice(ANALYSTS),
            demand(draw),
            Epsilon(draw.choice([1, 2, 3, 10**9, draw.randint(1, 2**40)])),
        )
        version = draw.choice([1, 1, 2, 3])
        price = own[who].price(asked, loss, version)
        assert own[who].charge(asked, loss, version) == price
        union.charge(asked, loss, version)
        log += entries(who, version, asked, loss.nano, names)
    each = [costs.spent for costs in own]
    totals = [union.spent, sum(each, Epsilon(0)), *each]
    return f"([{'; '.join(log)}], [{'; '.join(str(total.nano) for total in totals)}])"


def coqc(folder: Path, name: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Lets Coq check a file of a folder."""
    if text:
        (folder / name).write_text(text, encoding="utf-8")
    command = ["coqc", "-q", "-Q", ".", "Pinq", name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def prove(folder: Path) -> None:
    """Checks the theorems, and prints what each of them assumes."""
    text = PROOF.read_text(encoding="utf-8")
    shutil.copy(PROOF, folder)
    checked = coqc(folder, PROOF.name)
    if checked.returncode:
        sys.exit(f"Refused: {checked.stderr}")
    theorems = re.findall(r"^Print Assumptions (\w+)\.$", text, flags=re.MULTILINE)
    stated = set(re.findall(r"^ *Theorem (\w+)", text, flags=re.MULTILINE))
    told = re.split(r"^(?=Closed under|Axioms:)", checked.stdout, flags=re.MULTILINE)[1:]
    if stated - {*theorems} or len(told) != len(theorems):
        sys.exit(f"Refused: {sorted(stated ^ {*theorems})} are not told apart.")
    for theorem, assumed in zip(theorems, told, strict=True):
        axioms = set(re.findall(r"^([\w.]+)\s*:", assumed.removeprefix("Axioms:"), flags=re.MULTILINE))
        if axioms - REALS:
            sys.exit(f"Refused: {theorem} assumes {sorted(axioms - REALS)}.")
        print(f"proved: {theorem} ({'from the axioms of real numbers' if axioms else 'without any axiom'})")


def conform(folder: Path, logs: int) -> None:
    """Compares totals of the product with those of the kernel."""
    draw = random.Random(SEED)
    cases = [case(draw) for _ in range(logs)]

    def check(number: int) -> str:
        some = ";\n".join(cases[number : number + AT_A_TIME])
        listed = f"Definition cases : list (ledger * list N) := [\n{some}].\n"
        equal = "Goal forallb right cases = true. Proof. vm_cast_no_check (eq_refl true). Qed.\n"
        refused = "Goal existsb right (map wrong cases) = false. Proof. vm_cast_no_check (eq_refl false). Qed.\n"
        return coqc(folder, f"Conform{number}.v", CHECK + listed + equal + refused).stderr

    with ThreadPoolExecutor(2) as pool:
        faults = [fault for fault in pool.map(check, range(0, logs, AT_A_TIME)) if fault]
    if faults:
        sys.exit(f"Refused: the product and the proof differ.\n{faults[0]}")
    off = re.sub(r"\d+\]\)$", lambda total: f"{int(total[0][:-2]) + 1}])", cases[0])
    if not coqc(
        folder, "Off.v", f"{CHECK}Goal right {off} = true. Proof. vm_cast_no_check (eq_refl true). Qed.\n"
    ).returncode:
        sys.exit("Refused: Coq accepts a wrong total.")
    print(f"{logs:,} random logs cost what the proof says, and {logs:,} wrong totals were refused")


def main(logs: int) -> None:
    """Proves, and compares."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        prove(Path(folder))
        conform(Path(folder), logs)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
