# SPDX-License-Identifier: Apache-2.0
"""Fitted models: trees, forests, and their pictures, arrays and JSON.

They send no query; everything is post-processing of answers. Read ``tree.py`` first.
"""
