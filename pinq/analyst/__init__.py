# SPDX-License-Identifier: Apache-2.0
"""The analyst's side: handles with five verbs, noisy answers, the client of a server.

It has no data, no noise and no secret but the analyst's token. Read ``queryable.py`` first.
"""
