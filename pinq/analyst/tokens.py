# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens: made and digested on the provider's side, found on the analyst's.

A token is 256 random bits. The ledger stores its plain SHA-256 only, from which nobody can guess
the token.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import IO

from pinq.errors import QueryError

PREFIX = "pinq_"
MAX_TOKEN = 256


def new_token() -> str:
    """Makes a token: ``pinq_`` and 256 bits of the operating system in 43 url-safe characters."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """The digest of a token, which the ledger stores."""
    return hashlib.sha256(token.encode()).hexdigest()


def person_digest(issuer: str, name: str, *, member: bool = False) -> str:
    """The digest of a person who signs in, which the ledger stores instead of a token's; no token has a line break.

    Args:
        issuer: The identity provider.
        name: The claim with the person's name.
        member: The name of a grant that stands while the person is in one of the policy's groups.
    """
    return digest(f"{issuer}\n{name}\n{'member' if member else ''}")


def find_token(url: str, token: str | os.PathLike[str] | None) -> str:
    """The analyst's token for a dataset's URL.

    Args:
        url: The dataset's, as it is passed to ``pinq.connect``.
        token: The token; or a file (a ``Path``) that holds it; or None for ``PINQ_TOKEN``, else the
            file that ``PINQ_TOKEN_FILE`` names, else ``~/.config/pinq/tokens``. A file has either a
            token alone, or lines of ``URL TOKEN``.

    Raises:
        QueryError: There is none, it is not one, or others may read its file.
    """
    if token is None:
        named = os.environ.get("PINQ_TOKEN_FILE")
        text = os.environ.get("PINQ_TOKEN") or _from_file(Path(named) if named else _home(), url, required=bool(named))
    else:
        if not isinstance(token, (str, os.PathLike)):
            raise QueryError(f"is no text and no path, but of type {type(token).__name__}", parameter="token")
        text = token if isinstance(token, str) else _from_file(Path(token), url, required=True)
    text = text.strip()
    if not text:
        raise QueryError(
            f"for {url} is missing; it may also stand in PINQ_TOKEN, or in a line `{url} TOKEN` of {_home()} "
            "(mode 0600).",
            parameter="token",
        )
    printable = text.isascii() and text.isprintable() and " " not in text
    if not text.startswith(PREFIX) or not printable or len(text) > MAX_TOKEN:
        raise QueryError(
            f"is not a token; one looks like {PREFIX}... and is what `pinq grant` printed. A file that holds one is "
            "named by a Path, or by PINQ_TOKEN_FILE.",
            parameter="token",
        )
    return text


def require_private(opened: IO[str], file: Path, noun: str) -> None:
    """Raises ``QueryError`` if others than its owner may read a file of secrets."""
    if os.name == "posix" and os.fstat(opened.fileno()).st_mode & 0o077:
        raise QueryError(f"{noun} {file} is readable by others, so what it holds is not secret; run: chmod 600 {file}")


def _home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pinq" / "tokens"


def _from_file(file: Path, url: str, *, required: bool) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            require_private(opened, file, "the token file")
            lines = [
                line.split()
                for line in opened.read(2**20).splitlines()
                if line.strip() and not line.lstrip().startswith("#")
            ]
    except FileNotFoundError:
        if required:
            raise QueryError(f"there is no token file {file}.") from None
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise QueryError(f"the token file {file} cannot be read: {why}.") from None
    if len(lines) == 1 and len(lines[0]) == 1:
        return lines[0][0]
    return next((words[1] for words in lines if len(words) == 2 and words[0].rstrip("/") == url.rstrip("/")), "")
