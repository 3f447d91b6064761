"""Errors: what can go wrong, and the exit code that says so."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = [
    "BadInput",
    "ClientFailed",
    "Corrupted",
    "Elsewhere",
    "Exhausted",
    "InUse",
    "Interrupted",
    "LeaksMore",
    "Lost",
    "NoMemory",
    "VeilrecError",
    "code_of",
    "encodable",
    "near_ids",
    "nearest",
    "no_memory",
    "visible",
]

LENGTH = 400  # letters of a message, at most
BLANK = " \t\r\n"
BLANKS = re.compile(f"[{BLANK}]+")

# How torch and the system say it, on a GPU and on a CPU; torch's own exception is not imported for this.
EXHAUSTED = (
    *("out of memory", "alloc_failed", "bad_alloc", "can't allocate memory", "cannot allocate memory"),
    *("not enough memory", "can't start new thread", "failed to map segment"),
)
FEWER = "train fewer devices at once (--set plan.chunk=16), or take --device cpu"


class VeilrecError(Exception):
    """An error that is told in one line; `code` is the exit code of the command."""

    code = 1


class BadInput(VeilrecError):
    """A file, a setting or an argument that cannot be right: ``where: what; what to do``."""

    code = 2

    def __init__(self, where: str | Path, what: str, fix: str = "", *, line: int | None = None) -> None:
        place = f"{where}:{line}" if line is not None else f"{where}"
        super().__init__(f"{place}: {what}" + (f"; {fix}" if fix else ""))


class InUse(BadInput):
    """A folder or a file that another process writes at the moment."""


class Lost(VeilrecError):
    """Another process of the run that is gone, or does not answer; `--resume` goes on from what was saved."""

    code = 3


class NoMemory(VeilrecError):
    """Memory that has run out, on a CPU or a GPU; `where` is what was done then, with a colon behind it."""

    code = 3

    def __init__(self, where: str = "") -> None:
        super().__init__(f"{where}out of memory; end what else runs there, {FEWER}")


class Exhausted(VeilrecError):
    """A budget of privacy that does not pay for one thing more: of this device nothing leaves."""

    code = 3


class Elsewhere(VeilrecError):
    """An error of another process of the run, as it was told there; `quiet` where that one says it, too."""

    def __init__(self, message: str, code: int, *, quiet: bool = False) -> None:
        self.code, self.quiet = code, quiet
        super().__init__(message)


class Corrupted(VeilrecError):
    """State on disk that does not match its checksum, or does not belong to this run."""

    code = 4


class LeaksMore(VeilrecError):
    """A leak above what a pipeline lets pass (`veilrec audit --fail-above`), once all is written."""

    code = 5


class Interrupted(VeilrecError):
    """SIGINT or SIGTERM; what was finished until then is on disk."""

    code = 130


class ClientFailed(VeilrecError):
    """The first exception inside a simulated device; it ends the run."""

    def __init__(self, user: str, round: int, phase: str, cause: BaseException) -> None:
        self.user, self.round, self.phase = user, round, phase
        self.code = code_of(cause)
        if no_memory(cause):  # of which no device in particular is the reason
            super().__init__(str(NoMemory(f"round {round}, {phase}: ")))
            return
        what = f"{cause}" if isinstance(cause, VeilrecError) else f"{type(cause).__name__}: {cause}"
        super().__init__(f"user {user}, round {round}, {phase}: {what}")


def no_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out."""
    if isinstance(error, VeilrecError | OSError):  # either may have a file's name in its text
        return isinstance(error, NoMemory) or getattr(error, "errno", 0) == errno.ENOMEM
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in EXHAUSTED)


def code_of(error: BaseException) -> int:
    """The exit code of a command that ends with an error."""
    if isinstance(error, VeilrecError):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return Interrupted.code
    if no_memory(error):
        return NoMemory.code
    return BadInput.code if isinstance(error, OSError) and error.filename is not None else 1


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean "…"?`` for a misspelt name, or the list of names where none is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"choose one of: {', '.join(names)}" if names else "there is nothing to choose from"


def near_ids(word: str, ids: Sequence[str]) -> str:
    """``did you mean …?`` for a mistyped id, or what ids are like: there may be millions."""
    near = difflib.get_close_matches(word, ids, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"ids are like {', '.join(ids[:3])}"


def visible(text: object, length: int = LENGTH) -> str:
    r"""One line that is safe to show on a terminal, whoever wrote the text.

    White space becomes single blanks; what does not print, such as the escape sequences of a terminal, marks
    that turn the direction of writing and bytes that are no text, becomes its escape; of long text the middle
    is left out, since an error begins with the place and ends with the way out.

    >>> visible("a\n\tb \x1b[31mred")
    'a b \\x1b[31mred'
    >>> visible("x" * 10**6 + "; lower it", 22)
    'xxxxxxxxxxx…; lower it'
    """
    words = " ".join(BLANKS.split(_cut(str(text), 4 * length).strip(BLANK)))
    return _cut("".join(map(_shown, words)), length)


def encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8; the name of a file that is none reaches Python all the same."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _cut(text: str, length: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= length:
        return text
    end = (length - 1) // 2
    return f"{text[: length - 1 - end]}…{text[len(text) - end :]}"
