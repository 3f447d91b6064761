"""The node: one device in a process of its own, from (letter, its own store) to (upload, its own store).

Run as ``python -m veilrec.node STORE < letter > upload`` it holds one device's data and nothing else. It
does what the engine does for a cohort of one, so a deployment is a thin wrapper around it. Noise, and what is
drawn for a pass, are the operating system's, which nobody can repeat; with ``--seeded`` they are the
simulation's, to compare the two. What a defence draws once and keeps is drawn in the device's first round,
and a store stays with the kind of noise that it began with.

A round is answered once, whoever asks, and however many at the same time: the answer, the device's new state
and what it cost are on the disk, in one file, before anything leaves. The same letter once more, or the same
under another attempt, gets the very same bytes, which cost nothing more; another letter of that round, or an
earlier one, is refused. Where the recipe has a budget, what would exceed it is refused with exit code 3.

What a user posts openly is a message of its own, as `Defence.posts` declares it. It is written to the file
that ``--post`` names, where the defence posts and the user consents; else no file is written. Without
``--post`` nothing is posted, and whoever learns from posts does without this user's.

Where a protocol's server scores, ``--ask`` answers a letter with what the device asks for recommendations
with. That is charged to the ledger as well, once for each letter: the same one gets the same question.

``--ledger`` prints what the device has answered so far, and what that cost its user.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veilrec.node.acts import answer, ask, ledger, longest
    from veilrec.node.command import main
    from veilrec.node.letters import letter
    from veilrec.node.provisioning import provision
    from veilrec.node.store import CARD, OWN, RECIPE

__all__ = ["CARD", "OWN", "RECIPE", "answer", "ask", "ledger", "letter", "longest", "main", "provision"]

HOMES = {  # imported when first asked for, so that a process hears signals before torch is there
    **dict.fromkeys(("CARD", "OWN", "RECIPE"), "store"),
    **dict.fromkeys(("answer", "ask", "ledger", "longest"), "acts"),
    **{"letter": "letters", "main": "command", "provision": "provisioning"},
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
