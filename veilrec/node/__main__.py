"""``python -m veilrec.node STORE``."""

from __future__ import annotations

from veilrec.base import process

if __name__ == "__main__":
    process.hear()  # before what takes seconds to be imported

from veilrec.node.command import main

if __name__ == "__main__":
    process.launch(main)
