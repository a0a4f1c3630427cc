# SPDX-License-Identifier: Apache-2.0
"""This room tries settings on made-up tables and public rows, where nothing is private.

It never asks a private handle. Read ``suggestion.py`` first.
"""
