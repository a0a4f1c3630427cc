# SPDX-License-Identifier: Apache-2.0
"""The common facts of both sides: columns, dates, the schema, epsilon, checks of arguments, plugins.

Nothing here reads a row of a table. Read ``schema.py`` first.
"""
