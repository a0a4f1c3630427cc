# SPDX-License-Identifier: Apache-2.0
"""Parties of a secure computation for tests: tables, sessions, certificates, and ``pinq secure join`` processes."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from benchmarks.papers.secure.processes import free_ports
from pinq.provider.grants import grant
from pinq.public.noise import SYSTEM
from pinq.public.schema import Categorical, Schema
from pinq_secure.id3.task import Holding, Task
from pinq_secure.mpc.arithmetic import Link
from pinq_secure.session.session import Member, Session
from pinq_secure.sums import JointSum, OwnRows, SecureFederation
from tests.support.processes.forked_processes import PinqProcess
from tests.support.processes.servers import publish

NAMES = ("clinic", "hospital", "registry")
COLUMNS: dict[str, Any] = {
    "smokes": {"type": "categorical", "values": ["no", "yes"]},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True, "cuts": [30, 60]},
    "ward": {"type": "categorical", "values": ["a", "b", "c"]},
    "ill": {"type": "categorical", "values": ["no", "yes"]},
}


def patients(rows: int, seed: int) -> pd.DataFrame:
    """Rows that fit ``COLUMNS``; smokers and old people are ill more often."""
    rng = np.random.default_rng(seed)
    smokes, age = rng.random(rows) < 0.4, rng.integers(0, 100, rows)
    ill = rng.random(rows) < 0.1 + 0.5 * smokes + 0.3 * (age > 60)
    words = np.array(["no", "yes"])
    return pd.DataFrame(
        {
            "smokes": words[smokes.astype(int)],
            "age": age,
            "ward": rng.choice(["a", "b", "c"], rows),
            "ill": words[ill.astype(int)],
        }
    )


def session_of(
    protocol: str, rows: list[int], lookups: tuple[int, ...] = (0, 0, 0), *, ports: Sequence[int] = (), **fields: Any
) -> Session:
    """A session of made-up parties on this machine that predicts who is ill; without ``ports`` they cannot connect."""
    members = [
        Member(name=f"p{number}", host="127.0.0.1", port=port, rows=most, lookups=asked)
        for number, (port, most, asked) in enumerate(zip(ports or range(1, len(rows) + 1), rows, lookups, strict=True))
    ]
    return Session.drafted(
        {"session": "t", "protocol": protocol, "target": "ill", "parties": members, "columns": COLUMNS} | fields
    )


class Wires:
    """Links among parties of one event loop, with all sent messages.

    Attributes:
        sent: The messages of each sender and receiver, each with its step.
    """

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.sent: dict[tuple[int, int], list[tuple[str, bytes]]] = {}
        self._news = asyncio.Event()

    def of(self, party: int) -> Wire:
        """One party's link."""
        return Wire(self, party)

    async def receive(self, sender: int, receiver: int, number: int) -> tuple[str, bytes]:
        """Waits for the message with a number, and returns it."""
        while len(self.sent.get((sender, receiver), ())) <= number:
            self._news.clear()
            await self._news.wait()
        return self.sent[sender, receiver][number]

    def send(self, sender: int, receiver: int, what: str, message: bytes) -> None:
        self.sent.setdefault((sender, receiver), []).append((what, message))
        self._news.set()


class Wire(Link):
    """A party's link to the others."""

    def __init__(self, wires: Wires, party: int) -> None:
        self._wires, self.party, self.parties = wires, party, wires.parties
        self._heard: Counter[int] = Counter()

    async def exchange(self, what: str, own: Mapping[int, bytes], senders: Iterable[int]) -> dict[int, bytes]:
        for number, message in own.items():
            self._wires.send(self.party, number, what, message)
        received = {}
        for number in senders:
            step, received[number] = await self._wires.receive(number, self.party, self._heard[number])
            self._heard[number] += 1
            assert step == what
        return received


def with_plain_noise(parties: SecureFederation, seed: int) -> SecureFederation:
    """The same parties with noise of the same width, drawn once for all: for tests of queries, not of opened values."""
    draw = np.random.default_rng(seed)

    def add_up(asked: JointSum, own: OwnRows) -> np.ndarray:
        scales = np.concatenate([np.full(math.prod(one.shape), float(1 / one.loss)) for one in asked.additions])
        return asked.table(own, SYSTEM) + np.rint(draw.laplace(0, scales)).astype(np.int64)

    parties._add_up = add_up
    return parties


def random_task(rng: np.random.Generator, most_rows: int = 40, most_attributes: int = 4) -> tuple[Task, Holding]:
    """A small random table with few values, so that ties, empty branches and pure nodes are common."""
    sizes, classes, rows = (
        rng.integers(2, 5, rng.integers(1, most_attributes + 1)),
        int(rng.integers(2, 4)),
        int(rng.integers(0, most_rows)),
    )
    columns = {f"a{number}": Categorical(values=tuple(range(size))) for number, size in enumerate(sizes)}
    schema = Schema(columns=columns | {"y": Categorical(values=tuple(range(classes)))}, max_rows=most_rows)
    places = np.stack([rng.integers(0, size, rows) for size in [*sizes, classes]])
    return Task.of(schema, "y", (max(1, rows) + int(rng.integers(0, 3)),)), Holding(
        places, np.ones(rows, dtype=np.int64)
    )


def certify(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate that a party made for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = pd.Timestamp.now("UTC").to_pydatetime()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - pd.Timedelta(days=1))
        .not_valid_after(now + pd.Timedelta(days=30))
        .sign(key, SHA256())
    )
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files[1].chmod(0o600)
    return files


class Consortium:
    """Three providers, each with a folder of rows, policy, certificate, and the common session file.

    Args:
        folder: The folder of all three.
        rows: The rows of each party, approximately.
        tls: Whether there are certificates.
        policy: Further fields of each policy.
        session: Further fields of the session.
    """

    def __init__(
        self, folder: Path, *, rows: int = 60, tls: bool = True, policy: dict[str, Any] | None = None, **session: Any
    ) -> None:
        self.folder, self.tls = folder, tls
        self.frames = [patients(rows + 10 * number, number) for number in range(len(NAMES))]
        self.policies = [
            publish(folder / name, name, frame, columns=COLUMNS, max_rows=200, **(policy or {}))
            for name, frame in zip(NAMES, self.frames, strict=True)
        ]
        if tls:
            for name in NAMES:
                certify(folder, name)
        members = [
            {"name": name, "host": "127.0.0.1", "port": port, "rows": 200, "lookups": 0}
            | ({"certificate": (folder / f"{name}.crt").read_text()} if tls else {})
            for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)
        ]
        for member, lookups in zip(members, session.pop("lookups", (0, 0, 0)), strict=True):
            member["lookups"] = lookups
        self.session = Session.drafted(
            {"session": "study", "protocol": "sid3p", "target": "ill", "parties": members, "columns": COLUMNS} | session
        )
        self.files = [self.write(number, self.session) for number in range(len(NAMES))]

    def write(self, party: int, session: Session) -> Path:
        """A party's copy of the session file; JSON is YAML."""
        file = self.folder / NAMES[party] / "session.yaml"
        file.write_text(session.text, encoding="utf-8")
        return file

    def grant(self, epsilon: float = 10) -> None:
        """Each provider grants the consortium a budget."""
        for policy in self.policies:
            grant(policy, "consortium", epsilon)

    def join(self, party: int, *options: str, agree: str | None = None, program: str = "") -> PinqProcess:
        """Starts a party's process; its result goes to ``result.json`` in its folder. ``program`` is Python to run in place of ``pinq``."""
        name = NAMES[party]
        words = ["secure", "join", str(self.files[party]), "--party", name, "--policy", str(self.policies[party])]
        words += ["--agree", agree or self.session.digest, "--listen", "127.0.0.1", "--wait", "60"]
        words += ["-o", str(self.folder / name / "result.json"), *options]
        if self.tls and "--cert" not in options:
            words += ["--cert", str(self.folder / f"{name}.crt"), "--key", str(self.folder / f"{name}.key")]
        output, errors = self.folder / name / "output", self.folder / name / "errors"
        return PinqProcess(words, output=output, errors=errors, program=program)

    def run(self, *options: str) -> list[str]:
        """Runs all parties to the end; returns the messages of each. Fails if a party failed."""
        running = [self.join(party, *options) for party in range(len(NAMES))]
        said = [process.communicate(timeout=120)[1] for process in running]
        assert [process.returncode for process in running] == [0] * len(NAMES), said
        return said
