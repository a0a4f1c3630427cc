# SPDX-License-Identifier: Apache-2.0
"""This room holds what was learned: trees, forests, and their pictures, arrays and JSON.

Nothing here asks for anything; all of it is post-processing of answers. Read ``tree.py`` first.
"""
