# SPDX-License-Identifier: Apache-2.0
"""Signed heads: small texts with the last event of a log, signed with a key of the provider.

The public key and one old head show whether a log still begins with the same events. Heads are
checkpoints in the form of a signed note, so tools for transparency logs can store and verify them:

    hospital.example/adult
    53
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=
    time 2030-01-31T09:00:00+00:00

    — hospital.example Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=

The hash is not the root of a Merkle tree, so proofs of consistency do not apply: the log itself is the proof.

References:
    C2SP, "Note" (c2sp.org/signed-note) and "Transparency Log Checkpoints" (c2sp.org/tlog-checkpoint).
"""

from __future__ import annotations

import hashlib
import os
import re
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pinq.errors import QueryError
from pinq.ledger.events import now
from pinq.public.plugins import optional

ED25519 = b"\x01"  # the type of the signature, in ids and texts of keys
SECRET = "PRIVATE+KEY+"
_NAME = re.compile(r"[!-*,-~]{1,128}")
_KEY = re.compile(rf"({re.escape(SECRET)})?({_NAME.pattern})\+([0-9a-f]{{8}})\+([A-Za-z0-9+/]{{44}})\s*")
_BODY = re.compile(r"([!-~]+)\n([1-9][0-9]*)\n([A-Za-z0-9+/]{43}=)\ntime (\S+)")
_SIGNATURE = re.compile(r"— (\S+) ((?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)")


class SignedHead(NamedTuple):
    """The contents of a head, after its signature was verified.

    Attributes:
        origin: The name of the key, a slash, and the dataset.
        seq: The number of the event.
        hashed: The hash of the event, in hexadecimal.
        at: The time of the signature by the signer's clock.
    """

    origin: str
    seq: int
    hashed: str
    at: str


class HeadKey:
    """An Ed25519 key of heads: a secret key, which signs, or a public key.

    Args:
        name: Name of the key, as ``hospital.example``; no other provider should use it.
        data: The 32 bytes of the key.
        secret: Whether it is the secret key.
    """

    def __init__(self, name: str, data: bytes, *, secret: bool) -> None:
        keys: Any = optional(
            "cryptography.hazmat.primitives.asymmetric.ed25519", "heads", "signing heads needs cryptography"
        )
        self.name, self._signer = name, keys.Ed25519PrivateKey.from_private_bytes(data) if secret else None
        self._verifier = self._signer.public_key() if self._signer else keys.Ed25519PublicKey.from_public_bytes(data)
        self._public = ED25519 + self._verifier.public_bytes_raw()
        self._id = hashlib.sha256(name.encode() + b"\n" + self._public).digest()[:4]

    @classmethod
    def create(cls, file: str | os.PathLike[str], name: str) -> HeadKey:
        """Makes a key and writes it, as one line, into a new file that only its owner can read."""
        if not _NAME.fullmatch(name):
            allowed = "1 to 128 visible characters of ASCII without `+`: hospital.example"
            raise QueryError(f"is {name[:140]!r}", parameter="name", allowed=allowed)
        data = os.urandom(32)
        key = cls(name, data, secret=True)
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as stream:
            stream.write(f"{SECRET}{name}+{key._id.hex()}+{b64encode(ED25519 + data).decode()}\n")
        return key

    @classmethod
    def read(cls, file: str | os.PathLike[str], *, secret: bool = False) -> HeadKey:
        """Reads a file with one key, which must be secret if ``secret``.

        Raises:
            QueryError: The file is not such a key, or is a secret key that others may read.
        """
        path = Path(file)
        match = _KEY.fullmatch(path.read_bytes().decode(errors="replace"))
        if match is not None:
            data = b64decode(match[4])
            key = cls(match[2], data[1:], secret=bool(match[1]))
            if data[:1] == ED25519 and key._id.hex() == match[3]:
                if match[1] and path.stat().st_mode & 0o077:
                    raise QueryError(f"others may read {path}, a secret key. Use `chmod 600 {path}`.")
                if secret and not match[1]:
                    raise QueryError(f"{path} is the public key; only the secret key signs.")
                return key
        raise QueryError(f"{path} is no key of heads: it is cut, or another file. `pinq head-key` makes one.")

    @property
    def public(self) -> str:
        """The public key as one line of text."""
        return f"{self.name}+{self._id.hex()}+{b64encode(self._public).decode()}"

    def sign(self, dataset: str, seq: int, hashed: str) -> str:
        """Writes a signed head of a dataset's log, with the secret key."""
        assert self._signer is not None
        root = b64encode(bytes.fromhex(hashed)).decode()
        text = f"{self.name}/{dataset}\n{seq}\n{root}\ntime {now().isoformat(timespec='seconds')}\n"
        return f"{text}\n— {self.name} {b64encode(self._id + self._signer.sign(text.encode())).decode()}\n"

    def verified(self, file: str | os.PathLike[str]) -> SignedHead:
        """Reads a file with a signed head. Signatures by other keys are ignored.

        Raises:
            QueryError: The file is cut, is not a head, or is not signed by this key.
        """
        body, _, signatures = Path(file).read_bytes().decode(errors="replace").rpartition("\n\n")
        head, lines = _BODY.fullmatch(body), [_SIGNATURE.fullmatch(line) for line in signatures.split("\n")[:-1]]
        if head is None or not lines or not all(lines) or not signatures.endswith("\n"):
            raise QueryError(f"{file} is no signed head: it is cut, or another file.")
        signed = [b64decode(line[2] + "==") for line in lines if line and line[1] == self.name]
        matching = [signature[4:] for signature in signed if signature[:4] == self._id]
        if not matching:
            raise QueryError(f"{file} is not signed by the key {self.name}+{self._id.hex()}, but by another one.")
        from cryptography.exceptions import InvalidSignature

        try:
            for signature in matching:
                self._verifier.verify(signature, f"{body}\n".encode())
        except InvalidSignature:
            raise QueryError(f"{file} was changed after it was signed: its signature does not fit its text.") from None
        return SignedHead(head[1], int(head[2]), b64decode(head[3]).hex(), head[4])


def write_head(folder: Path, key: HeadKey, dataset: str, seq: int, hashed: str) -> bool:
    """Writes a signed head of a dataset into a folder, unless the present head names the same event.

    Returns:
        Whether it was written.
    """
    file = folder / f"{dataset}.checkpoint"
    with suppress(QueryError, FileNotFoundError):
        if key.verified(file)[:3] == (f"{key.name}/{dataset}", seq, hashed):
            return False
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = folder / f".{file.name}.{os.getpid()}"
    fresh.write_text(key.sign(dataset, seq, hashed), encoding="utf-8")
    os.replace(fresh, file)
    return True
