# SPDX-License-Identifier: Apache-2.0
"""An import of this module excludes all earlier objects from garbage collection.

A forked process shares its parent's memory until it writes there, and a collection writes to every
object: freezing them makes the start of a server a quarter cheaper.
"""

import gc

gc.collect()
gc.freeze()
