# SPDX-License-Identifier: Apache-2.0
"""The workbench: what the commands and a handle do, in a browser on the same machine.

It stands above ``pinq`` and ``miners``, which know nothing of it, and decides nothing: each act is a
call of a function that a command or a program would call, and the page shows which. Three ways in,
one file each: ``provider.py`` on a folder, ``analyst.py`` on a handle, ``auditor.py`` on a ledger.
Read ``run.py`` first; ``guard.py`` says who may talk to it.
"""
