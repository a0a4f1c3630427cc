# SPDX-License-Identifier: Apache-2.0
"""The experiments of five papers, measured again on this project's miners.

Each paper has a folder: ``experiments.py`` says what is measured, ``report.py`` what is written,
``__main__.py`` hands both to the harness. They know the harness and nothing of one another.
"""
