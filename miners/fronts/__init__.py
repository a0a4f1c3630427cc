# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a question: SQL, and what an agent's program calls.

They read text and ask the tables below. Nothing here sees rows, adds noise or proves anything: what
a front cannot say by the verbs, it refuses. Read ``sql.py`` first.
"""
