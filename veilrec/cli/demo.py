"""``veilrec demo``: the whole line on an embedded world, with no arguments, no data and no network."""

from __future__ import annotations


def demo() -> None:
    """Train on an embedded world of synthetic people and print what comes out."""
