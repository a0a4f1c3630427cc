# SPDX-License-Identifier: Apache-2.0
"""Where this checkout stands."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
