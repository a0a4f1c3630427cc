# SPDX-License-Identifier: Apache-2.0
"""Several trees from one handle in one frontier: DiPriMe, and the baselines beside it."""
