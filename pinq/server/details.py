# SPDX-License-Identifier: Apache-2.0
"""The destination of the causes of inner failures, which may quote rows: a file, or none."""

from __future__ import annotations

import logging
import os

from pinq.errors import InternalError

LOG = logging.getLogger("pinq.server")


def log_details() -> None:
    """Sends what the package logs to the file that ``PINQ_LOG`` names, never to a terminal."""
    file = os.environ.get("PINQ_LOG")
    if file:  # it may quote the data: readable by the provider alone, from the first byte
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    # Without a handler, logging would print the engine's errors, and with them perhaps values, to
    # the terminal.
    logging.getLogger("pinq").addHandler(logging.FileHandler(file, delay=True) if file else logging.NullHandler())


def unexpected() -> InternalError:
    """Sends the exception that is being handled there; returns what an analyst is told instead."""
    LOG.exception("a request failed")
    return InternalError("Something unexpected went wrong in the server. Please tell the data provider.")
