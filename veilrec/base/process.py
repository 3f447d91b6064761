"""A command as a process: its streams, the signals that end it, and the one line where something is wrong."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

from veilrec.errors import (
    BadInput,
    ClientFailed,
    Elsewhere,
    Interrupted,
    NoMemory,
    VeilrecError,
    code_of,
    encodable,
    no_memory,
    visible,
)

__all__ = ["PIPE_CLOSED", "check_text", "hear", "hearing", "launch", "run", "say", "told", "writing_output"]

PIPE_CLOSED = 141  # 128 and SIGPIPE: nobody reads any more, which is no failure and nothing to be told
FAILED = 1
OUTPUT = "standard output"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


def say(message: object, code: int) -> int:
    """Say one line on the standard error, where there is one; returns the exit code, which stays."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"veilrec: error: {visible(message)}\n")
        sys.stderr.flush()
    return code


def told(error: BaseException) -> int:
    """The exit code of an error, when its line is said; one that nobody foresaw is shown in full."""
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    if isinstance(error, KeyboardInterrupt):
        return say("interrupted", Interrupted.code)
    if isinstance(error, VeilrecError):
        return _known(error)
    if no_memory(error):
        return say(NoMemory(), NoMemory.code)
    if isinstance(error, OSError) and (error.filename is not None or error.errno in NO_ROOM):
        where = "a file without a name" if error.filename is None else error.filename
        return say(
            f"{where}: {error.strerror}; check the path, its permissions and the space left", BadInput.code
        )
    traceback.print_exception(error)
    return say("this is a bug of veilrec; please report it with the lines above", FAILED)


def _known(error: VeilrecError) -> int:
    """One line for an error that veilrec knows; a device that failed for a reason unknown shows where."""
    if isinstance(error, Elsewhere) and error.quiet:
        return error.code  # another process says it
    cause = error.__cause__
    if isinstance(error, ClientFailed) and cause is not None and code_of(cause) == FAILED:
        traceback.print_exception(cause)
    return say(error, error.code)


def run(command: Callable[[], int]) -> int:
    """Run a command: whatever happens becomes an exit code and, where something is wrong, one line.

    The standard streams are such that it may rely on them. What cannot be written to the standard output is
    an error that says so; what cannot be written to the standard error is left out, since whoever does not
    hear of progress may want the result. Letters that an output does not have become question marks. Signals
    are heard.
    """
    with hearing(), _streams() as writable, _noting():
        try:
            if not writable:  # before any work of which nobody would have the result
                raise BadInput(OUTPUT, "is closed", "give it a place, such as > /dev/null")
            if not _somewhere():
                raise BadInput("the working folder", "is gone", "go to another one")
            code = command()
            sys.stdout.flush()
            return code
        except (KeyboardInterrupt, Exception) as error:
            return told(error)


def _somewhere() -> bool:
    """Whether relative paths mean anything."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


@contextmanager
def _noting() -> Iterator[None]:
    """While this lasts, a warning of ours is a line on the standard error, once; others are as they were."""
    before, said = warnings.showwarning, set[str]()

    def show(message: Any, category: type[Warning], *more: Any, **options: Any) -> None:
        if not category.__module__.startswith("veilrec."):
            before(message, category, *more, **options)
        elif (line := visible(message)) not in said:
            said.add(line)
            sys.stderr.write(f"veilrec: warning: {line}\n")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


@contextmanager
def _streams() -> Iterator[bool]:
    """The standard streams as a command has them, and whether there is an output."""
    before = sys.stdin, sys.stdout, sys.stderr
    with suppress(OSError):
        _fill_in()
    try:
        sys.stdin = before[0] or io.TextIOWrapper(io.BytesIO())
        sys.stdout = cast(TextIO, _Output(before[1] or io.StringIO()))
        sys.stderr = cast(TextIO, _Quiet(before[2] or _nobody()))
        yield before[1] is not None
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def _fill_in() -> None:
    """Give the numbers of standard streams that are closed to nobody else, such as the next file."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _nobody() -> TextIO:
    return os.fdopen(2, "w", closefd=False)


class _Stream:
    """A text stream that behaves otherwise where it cannot be written; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Output(_Stream):
    """A standard output that names itself where it fails."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # of a stream that is broken already
                stream.reconfigure(errors="replace")  # a title may have letters that the terminal lacks

    def write(self, text: str) -> int:
        with writing_output(self._stream):
            return self._stream.write(text)

    def flush(self) -> None:
        with writing_output(self._stream):
            self._stream.flush()


class _Quiet(_Stream):
    """A standard error that never fails."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _let_go(self._stream)


@contextmanager
def writing_output(stream: TextIO | None = None) -> Iterator[None]:
    """Turn what goes wrong with the standard output into an error that names it, and write no more there.

    Raises:
        BadInput: Where it is full, for instance.
        BrokenPipeError: Where nobody reads it any more.
    """
    try:
        yield
    except OSError as cause:
        _let_go(stream or sys.stdout)
        if isinstance(cause, BrokenPipeError):
            raise
        what = f"cannot be written ({cause.strerror or cause})"
        raise BadInput(OUTPUT, what, "make room, or send it elsewhere") from cause


def _let_go(stream: TextIO) -> None:
    """Lead a stream to nowhere: Python would write once more, at its end, what it could not write before."""
    with suppress(OSError, ValueError):  # a stream without a number, as in a test
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


def check_text(words: Sequence[str]) -> None:
    """Refuse arguments that are no text: files, JSON and TOML could not name what they name.

    Raises:
        BadInput: With the place of the first one.
    """
    for place, word in enumerate(words, 1):
        if not encodable(word):
            fix = "rename that file; where the locale lacks its letters, set PYTHONUTF8=1"
            raise BadInput(f"argument {place}", f'"{visible(word, 80)}" is no text', fix)


def hear() -> None:
    """End with one line, from now on, where SIGINT or SIGTERM comes, unless the caller wants one ignored.

    In the middle of an import an exception might be lost, or leave half a module; nothing is written then,
    and the process ends at once. Elsewhere it is a `KeyboardInterrupt`.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextmanager
def hearing() -> Iterator[None]:
    """While this lasts, signals are heard; in another than the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    hear()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _handle(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            with suppress(OSError):  # not through `sys.stderr`, which may be at work just now
                os.write(2, b"veilrec: error: interrupted\n")
            os._exit(Interrupted.code)
        frame = frame.f_back
    raise KeyboardInterrupt


def launch(command: Callable[[], int]) -> NoReturn:
    """Run a command as all that this process is for, and end with its code: also where a signal comes first.

    Raises:
        SystemExit: With the exit code.
    """
    try:
        hear()
        code = command()
        for number in SIGNALS:  # all is done and said
            signal.signal(number, signal.SIG_IGN)
    except KeyboardInterrupt as error:
        code = told(error)
    sys.exit(code)
