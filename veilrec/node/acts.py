"""Acts of a device: it answers a round, asks for recommendations, and tells what that has cost.

Each is one turn under the lock of its store: read, change, write, and only then leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veilrec.base.defaults import own_defaults
from veilrec.base.files import atomic
from veilrec.base.locks import WAIT, locked
from veilrec.base.plain import check_way
from veilrec.errors import BadInput
from veilrec.model import overrides
from veilrec.node.contents import ANSWER, POST, QUESTION, REPLY, RUN, SEEDED
from veilrec.node.phone import Phone
from veilrec.node.store import CARD
from veilrec.protocol import Protocol

__all__ = ["answer", "ask", "ledger", "longest"]


@own_defaults()
def answer(folder: Path, message: bytes, *, seeded: bool = False, post: Path | None = None) -> bytes:
    """The upload of the device whose store is `folder`, in answer to a letter: at most one in each round.

    It is on the disk, with what the device holds and has spent from then on, before it is returned. The first
    one prepares the data and draws what the defence keeps; later ones find both in the store.

    Args:
        folder: The store.
        message: What the server sent. The letter that was answered last gets the same bytes once more.
        seeded: Draw noise from the experiment's keys, as a simulation does: not private.
        post: The file for what the user posts, where that is anything; without it nothing is posted.

    Raises:
        BadInput: If the message is not what the protocol declares, its round was answered before and it is
            another, the store's noise was drawn in the other way, or another process answers for too long;
            the store stays as it was.
        Exhausted: If the recipe's budget does not pay for it.
        Corrupted: If the store is damaged.
    """
    if post is not None:
        _check_post(post, folder)  # before the round counts as answered
    with _opened(folder, seeded=seeded) as phone:
        received = phone.read(message)
        if not phone.repeats(received):
            phone.respond(received)
        phone.note(received.notes, posts=post is not None)
        phone.save()
        if post is not None and ANSWER + POST in phone.own:
            with atomic(post) as file:
                file.write(phone.bytes_of(ANSWER + POST))
        return phone.bytes_of(ANSWER + REPLY)


@own_defaults()
def ask(folder: Path, message: bytes, *, seeded: bool = False) -> bytes:
    """The question of the device whose store is `folder`, with which it asks for recommendations.

    It is charged to the ledger, once for each letter: the same letter gets the same question, unless a round
    was answered in between.

    Args:
        folder: The store.
        message: What the server sent, as for a round.
        seeded: Draw what is random as a simulation does: not private.

    Raises:
        BadInput: If the message is not what the protocol declares, or the protocol's server does not score.
        Exhausted: If the recipe's budget does not pay for it.
        Corrupted: If the store is damaged.
    """
    with _opened(folder, seeded=seeded) as phone:
        if not overrides(phone.fleet.protocol, Protocol, "query"):
            what = f"under {type(phone.fleet.protocol).__name__} devices score for themselves"
            raise BadInput("--ask", what, "ask a device whose server scores")
        if SEEDED not in phone.own:  # else each question would draw anew what a defence draws once
            raise BadInput("--ask", "this device has answered no round yet", "let it take part in one first")
        received = phone.read(message, asks=True)
        if not phone.has(QUESTION, received):
            phone.ask(received)
        phone.note(received.notes)
        phone.save()
        return phone.bytes_of(QUESTION + REPLY)


@own_defaults()
def ledger(folder: Path) -> dict[str, Any]:
    """What the device whose store is `folder` has answered and asked, and what that cost; nothing changes."""
    phone = Phone.open(folder)
    begun = SEEDED in phone.own
    told = {"run": phone.bytes_of(RUN).decode(), "seeded": phone.seeded} if begun else {}
    return {"run": "", "seeded": None, **told, **phone.account.summary(phone.ledger)}


@own_defaults()
def longest(folder: Path) -> int:
    """The bytes of the longest letter that the device whose store is `folder` reads."""
    return Phone.open(folder).letterbox.longest


def _check_post(post: Path, folder: Path) -> None:
    """Refuse a place where no post can be written, or none should be."""
    if post.is_dir() or not post.parent.is_dir():
        raise BadInput(post, "is no place for a file", "name another")
    if folder.resolve() in post.resolve().parents:
        raise BadInput(post, "lies in the device's store", "name a place elsewhere")
    check_way(post)


@contextmanager
def _opened(folder: Path, *, seeded: bool) -> Iterator[Phone]:
    """The device of a store, which no other process reads or writes meanwhile."""
    if not (folder / CARD).is_file():
        raise BadInput(folder, "is no device's store", f"give the folder that holds {CARD}")
    with locked(folder, WAIT):
        yield Phone.open(folder, seeded=seeded)
