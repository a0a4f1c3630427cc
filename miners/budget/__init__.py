# SPDX-License-Identifier: Apache-2.0
"""How a miner divides its epsilon: shares for each question, the noise that follows, the plan for people.

Everything follows from public facts, before anything is asked. Read ``schedule.py`` first.
"""
