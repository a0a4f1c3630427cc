# SPDX-License-Identifier: Apache-2.0
"""What was learned: trees of classes or of means, forests of them, their pictures, arrays and JSON.

Nothing here asks for anything; all of it is post-processing of answers. Read ``tree.py`` first.
"""
