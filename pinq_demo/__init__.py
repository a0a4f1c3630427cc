# SPDX-License-Identifier: Apache-2.0
"""The demo, its table and its policy, for people who have no clone: ``pinq demo``. Read ``adult.py``."""
