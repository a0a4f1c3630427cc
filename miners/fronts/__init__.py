# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a query: SQL, and the tools of an agent's program.

They read text and query the tables below. A front refuses everything that the query methods cannot express, so it needs
no proof. Read ``sql.py`` first.
"""
