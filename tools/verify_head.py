# SPDX-License-Identifier: Apache-2.0
"""Checks the signature of a ledger's head without pinq, with Python's standard library (RFC 8032, C2SP signed notes).

Usage: python verify_head.py HEAD KEY. HEAD is the file of a signed head, KEY the file of the provider's public key. It
prints the event that the head names, SEQ:HASH, for verify_log.py. The exit status is 1 for another signature.
"""

import hashlib
import sys
from base64 import b64decode
from pathlib import Path

Point = tuple[int, int]
P = 2**255 - 19  # the field
L = 2**252 + 27742317777372353535851937790883648493  # the order of the base point
D = -121665 * pow(121666, -1, P) % P  # the curve: y^2 - x^2 = 1 + D x^2 y^2


def point(encoded: bytes) -> Point:
    """Decodes a point (RFC 8032, section 5.1.3): y, and the parity of x in the highest bit."""
    number = int.from_bytes(encoded, "little")
    y, odd = number % 2**255, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if len(encoded) != 32 or y >= P or (x * x - square) % P or (odd and not x):
        raise ValueError("not a point of the curve")
    return (P - x if x % 2 != odd else x), y


def add(one: Point, other: Point) -> Point:
    (a, b), (c, d) = one, other
    k = D * a * b * c * d
    return (a * d + b * c) * pow(1 + k, -1, P) % P, (b * d + a * c) * pow(1 - k, -1, P) % P


def times(number: int, of: Point) -> Point:
    total = (0, 1)
    for bit in f"{number:b}":
        total = add(total, total)
        total = add(total, of) if bit == "1" else total
    return total


BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def signed_by(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether a signature is the key's (RFC 8032, section 5.1.7)."""
    if len(signature) != 64 or (s := int.from_bytes(signature[32:], "little")) >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + text).digest(), "little") % L
    return times(s, BASE) == add(point(signature[:32]), times(k, point(public)))


def head(note: str, key: str) -> str:
    """Returns the event that a signed head names; ``ValueError`` for another file, or another signature."""
    name, identifier, data = key.strip().split("+", 2)
    kind_and_public = b64decode(data, validate=True)
    public = kind_and_public[1:]
    if kind_and_public[:1] != b"\x01" or len(public) != 32:
        raise ValueError("the key is no public key of the kind Ed25519")
    own = hashlib.sha256(name.encode() + b"\n" + kind_and_public).digest()[:4]
    if own.hex() != identifier:
        raise ValueError("the key is cut or changed")
    body, blank, lines = note.rpartition("\n\n")
    if not blank or not lines.endswith("\n"):
        raise ValueError("the head is cut, or another file")
    found = False
    for line in lines[:-1].split("\n"):
        dash, signer, encoded = line.split(" ")
        signature = b64decode(encoded, validate=True)
        if (dash, signer, signature[:4]) == ("—", name, own):
            if not signed_by(public, f"{body}\n".encode(), signature[4:]):
                raise ValueError("the head was changed after it was signed")
            found = True
    if not found:
        raise ValueError("the head is not signed by this key")
    _, seq, root, *_ = body.split("\n")
    return f"{int(seq)}:{b64decode(root, validate=True).hex()}"


if __name__ == "__main__":
    try:
        print(head(*(Path(file).read_text(encoding="utf-8") for file in sys.argv[1:3])))
    except (ValueError, OSError) as error:
        sys.exit(f"Refused: {error}.")
