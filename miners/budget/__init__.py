# SPDX-License-Identifier: Apache-2.0
"""The division of a miner's epsilon: a fraction for each query, the noise, the plan.

Everything follows from public facts, before the first query. Read ``plan.py`` first.
"""
