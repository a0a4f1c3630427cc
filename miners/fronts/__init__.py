# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a query: SQL, and the tools of an agent's program.

A front refuses everything that the query methods cannot express, so it needs no proof. Read ``sql.py`` first.
"""
