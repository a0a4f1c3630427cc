# SPDX-License-Identifier: Apache-2.0
"""The folder of this checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
