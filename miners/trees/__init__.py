# SPDX-License-Identifier: Apache-2.0
"""One tree from one handle: how it grows, what becomes of the answers, and SuLQ-ID3, DiffPID3 and DiffPC4.5."""
