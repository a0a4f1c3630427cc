# SPDX-License-Identifier: Apache-2.0
"""How a miner divides its epsilon: a share for each question, the noise that follows, the plan.

Everything follows from public facts, before anything is asked. Read ``plan.py`` first.
"""
