"""veilrec trains recommenders on data that never leaves devices, measures what leaks, and makes it forget.

The package is one line, and its modules are the stations:

    interactions → clients → rounds → uploads → attack → metrics → report
                        └─ defences act on the way ─┘
"""

__version__ = "0.1.0"
