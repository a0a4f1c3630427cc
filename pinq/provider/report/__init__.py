# SPDX-License-Identifier: Apache-2.0
"""The audit: what the log says about budgets, refusals and exhaustion, as text, JSON, CSV and HTML.

It reads the log alone, never the table. Read ``audit.py`` first.
"""
