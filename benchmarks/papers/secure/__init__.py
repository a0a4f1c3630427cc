# SPDX-License-Identifier: Apache-2.0
"""Secure ID3: the paper's Table 6.1 again beside MPyC's own demo, bytes on the wire, and what noise inside costs in accuracy."""
