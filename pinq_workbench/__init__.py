# SPDX-License-Identifier: Apache-2.0
"""The workbench: commands and a handle in a browser on the same machine.

It uses ``pinq`` and ``miners``, which do not know it, and decides nothing: each act calls a
function that a command or a program would call, and the page shows this call. Three ways in, one
file each: ``provider.py`` on a folder, ``analyst.py`` on a handle, ``auditor.py`` on a ledger. Read
``run.py`` first; ``guard.py`` controls access.
"""
