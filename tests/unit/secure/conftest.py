# SPDX-License-Identifier: Apache-2.0
"""MPyC is loaded before the tests: what it imports asks the system for its processor's name, once a process."""

from __future__ import annotations

from miners.secure.mpc.mpyc_runtime import mpyc

mpyc()
