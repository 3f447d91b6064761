"""Errors: what can go wrong, and the exit code that says so."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "BadInput",
    "ClientFailed",
    "Corrupted",
    "Elsewhere",
    "Interrupted",
    "Lost",
    "VeilrecError",
    "nearest",
]


class VeilrecError(Exception):
    """An error that is told in one line; `code` is the exit code of the command."""

    code = 1


class BadInput(VeilrecError):
    """A file, a setting or an argument that cannot be right: ``where: what; what to do``."""

    code = 2

    def __init__(self, where: str | Path, what: str, fix: str = "", *, line: int | None = None) -> None:
        place = f"{where}:{line}" if line is not None else f"{where}"
        super().__init__(f"{place}: {what}" + (f"; {fix}" if fix else ""))


class Lost(VeilrecError):
    """Another process of the run that is gone, or does not answer; `--resume` goes on from what was saved."""

    code = 3


class Elsewhere(VeilrecError):
    """An error of another process of the run, as it was told there; `quiet` where that one says it, too."""

    def __init__(self, message: str, code: int, *, quiet: bool = False) -> None:
        self.code, self.quiet = code, quiet
        super().__init__(message)


class Corrupted(VeilrecError):
    """State on disk that does not match its checksum, or does not belong to this run."""

    code = 4


class Interrupted(VeilrecError):
    """SIGINT or SIGTERM; what was finished until then is on disk."""

    code = 130


class ClientFailed(VeilrecError):
    """The first exception inside a simulated device; it ends the run."""

    def __init__(self, user: str, round: int, phase: str, cause: BaseException) -> None:
        self.user, self.round, self.phase = user, round, phase
        self.code = cause.code if isinstance(cause, VeilrecError) else 1
        what = f"{cause}" if isinstance(cause, VeilrecError) else f"{type(cause).__name__}: {cause}"
        super().__init__(f"user {user}, round {round}, {phase}: {what}")


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean "…"?`` for a misspelt name, or the list of names where none is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"choose one of: {', '.join(names)}" if names else "there is nothing to choose from"
