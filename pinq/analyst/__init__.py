# SPDX-License-Identifier: Apache-2.0
"""The analyst's side: handles with five verbs, noisy answers, the client of a server.

It has no data, no noise and no secret but the analyst's token, and works without the provider's libraries. Read
``queryable.py`` first.
"""
