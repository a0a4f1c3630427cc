# SPDX-License-Identifier: Apache-2.0
"""DP-DILCA beside its non-private oracle and the published mechanism, and the figures of its paper again."""
