# SPDX-License-Identifier: Apache-2.0
"""The language of requests: partition specs, parts, scores, queries, and their form on the wire.

Nothing here reads a row, draws noise or does I/O; everything follows from the schema and from
requests. Read ``specs.py`` first, then ``queries.py``.
"""
