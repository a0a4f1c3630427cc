# SPDX-License-Identifier: Apache-2.0
"""``Member`` is one party as the session names it."""

from __future__ import annotations

import ssl

from pydantic import Field, ValidationInfo, field_validator

from pinq.public.declared import Declared, derived

__all__ = ["MAX_ROWS", "NAME", "Member", "first_certificate"]

MAX_ROWS = 2**33
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class Member(Declared):
    """One party."""

    name: str = Field(pattern=NAME, description="what the others call it")
    host: str = Field(min_length=1, description="where it listens for those named before it")
    port: int = Field(ge=1, le=65535)
    rows: int = Field(ge=1, le=MAX_ROWS, description="the most rows that it may have; its policy's `max_rows`")
    lookups: int = Field(default=0, ge=0, le=10_000, description="sid3s, sid3t: how many rows it may have classified")
    certificate: str | None = Field(
        default=None, description="its certificate, PEM, or a file with it beside the session"
    )

    @field_validator("certificate")
    @classmethod
    def _read_in(cls, certificate: str | None, info: ValidationInfo) -> str | None:
        """Reads the file that is named, so that the certificate itself is part of what is agreed.

        Where a session comes from a file, the context is that file's folder.
        """
        if certificate is None or info.context is None:
            return certificate
        try:
            text = certificate if "-----BEGIN" in certificate else (info.context / certificate).read_text("ascii")
            return ssl.DER_cert_to_PEM_cert(first_certificate(text))
        except (OSError, ValueError) as error:
            raise ValueError(f"the certificate {certificate[:80]!r} cannot be read: {error}") from None

    @derived
    def certificate_der(self) -> bytes | None:
        """The certificate itself."""
        return None if self.certificate is None else ssl.PEM_cert_to_DER_cert(self.certificate)


def first_certificate(text: str) -> bytes:
    """Returns the first certificate of a PEM file, DER. ``ValueError`` where there is none."""
    start, end = text.index(ssl.PEM_HEADER), text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
    return ssl.PEM_cert_to_DER_cert(text[start:end])
