"""veilrec: recommenders on data that never leaves people's devices, what the server can still find out, and forgetting.

The package is one line, and its modules are the stations:

    interactions → clients → rounds → uploads → attack → metrics → report
                        └─ defences act on the way ─┘
"""

__version__ = "0.1.0"
