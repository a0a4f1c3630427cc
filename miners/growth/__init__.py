# SPDX-License-Identifier: Apache-2.0
"""The growth of trees from noisy answers: one frontier, level by level, one request for each query.

It has the possible splits and the criteria, and turns answers into nodes. Read ``frontier.py`` first.
"""
