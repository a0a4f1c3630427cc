# SPDX-License-Identifier: Apache-2.0
"""The provider's page: budgets, refusals and the log in a browser, and acts that change a grant.

It runs no script and shows nothing of the rows. Read ``routes.py`` first.
"""
