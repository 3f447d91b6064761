"""The command: the letter on standard input, the reply on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from veilrec.base import process
from veilrec.errors import BadInput
from veilrec.node.acts import answer, ask, ledger, longest
from veilrec.node.store import CARD
from veilrec.recipe import catalogue

__all__ = ["main"]

USAGE = "python -m veilrec.node STORE [--seeded] [--ask | --ledger | --post FILE] [--plugin FILE]…"
BARE = ("--seeded", "--ask", "--ledger")  # what comes without a value


@dataclass(frozen=True)
class Order:
    """What a command asks for."""

    store: Path
    flags: frozenset[str]
    post: Path | None

    @property
    def seeded(self) -> bool:
        return "--seeded" in self.flags


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m veilrec.node STORE``: an exit code, and one line where something is wrong.

    Where the reply cannot be written, the same letter gets the same reply once more.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    return process.run(lambda: _put(_reply(_order(words))))


def _put(reply: bytes) -> int:
    with process.writing_output():
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()
    return 0


def _reply(order: Order) -> bytes:
    """The bytes that leave."""
    if "--ledger" in order.flags:
        return (json.dumps(ledger(order.store), indent=2, ensure_ascii=False) + "\n").encode()
    message = _letter(longest(order.store))
    if "--ask" in order.flags:
        return ask(order.store, message, seeded=order.seeded)
    return answer(order.store, message, seeded=order.seeded, post=order.post)


def _letter(most: int) -> bytes:
    """The standard input, of which no more is read than a letter has."""
    message = sys.stdin.buffer.read(most + 1)
    if len(message) > most:
        what = f"more than {most:,} bytes, and no letter of this run is as long"
        raise BadInput("message", what, "send what the protocol declares")
    return message


def _order(words: list[str]) -> Order:
    """What some words ask for; the plugins that they name are loaded."""
    process.check_text(words)
    flags = frozenset(word for word in words if word in BARE)
    folder, *rest = [*(word for word in words if word not in BARE), ""]
    named = list(zip(rest[:-1:2], rest[1:-1:2], strict=False))
    if not folder or not len(rest) % 2 or {name for name, _ in named} - {"--plugin", "--post"}:
        raise BadInput("node", "the arguments are a store, a file for the post and plugins", USAGE)
    posts = [Path(file) for name, file in named if name == "--post"]
    _check(flags, posts)
    if not (Path(folder) / CARD).is_file():
        raise BadInput(folder, "is no device's store", f"give the folder that holds {CARD}")
    for _, file in (one for one in named if one[0] == "--plugin"):
        catalogue.load_plugin(Path(file))
    return Order(Path(folder), flags, posts[0] if posts else None)


def _check(flags: Collection[str], posts: Sequence[Path]) -> None:
    """Refuse what does not go together."""
    if len(posts) > 1:
        raise BadInput("--post", "named twice", USAGE)
    if posts and "--ask" in flags:
        raise BadInput("--post", "who asks posts nothing", USAGE)
    if "--ledger" in flags and (posts or len(flags) > 1):
        raise BadInput("--ledger", "it only prints what was spent", USAGE)
