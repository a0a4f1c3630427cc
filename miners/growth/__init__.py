# SPDX-License-Identifier: Apache-2.0
"""How trees grow from noisy answers: one frontier, level by level, one request for each question.

It knows what may be split and by which criterion, and turns answers into nodes. Read
``frontier.py`` first.
"""
