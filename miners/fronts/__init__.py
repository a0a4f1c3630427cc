# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a query: SQL, and the tools of an agent's program.

They read text and ask the tables below. Nothing here sees rows, adds noise or needs a proof: a
front refuses all that the query methods cannot express. Read ``sql.py`` first.
"""
