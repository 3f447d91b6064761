"""Errors are one line, name the place and the way out, and carry the exit code."""

from __future__ import annotations

import pytest

from veilrec.errors import (
    BadInput,
    ClientFailed,
    Corrupted,
    Elsewhere,
    NoMemory,
    VeilrecError,
    code_of,
    nearest,
    no_memory,
    visible,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BadInput("a.csv", "bad", "mend it", line=3), "a.csv:3: bad; mend it"),
        (BadInput("plan.lr", "bad"), "plan.lr: bad"),
        (ClientFailed("ann", 4, "training", ValueError("no")), "user ann, round 4, training: ValueError: no"),
    ],
)
def test_the_line(error: VeilrecError, text: str) -> None:
    assert str(error) == text


def test_exit_codes() -> None:
    assert [e.code for e in (VeilrecError, BadInput, NoMemory, Corrupted)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), 3),
        (RuntimeError("can't start new thread"), 3),
        (RuntimeError("std::bad_alloc"), 3),
        (OSError(12, "Cannot allocate memory"), 3),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), 3),
        (ClientFailed("ann", 1, "training", MemoryError()), 3),
        (Elsewhere("round 1, training: out of memory", 3), 3),
        (FileNotFoundError(2, "No such file", "out of memory.csv"), 2),
        (BadInput("out of memory.csv", "empty"), 2),
        (KeyboardInterrupt(), 130),
        (ValueError("x"), 1),
    ],
    ids=str,
)
def test_the_code_of_any_error(error: BaseException, code: int) -> None:
    assert code_of(error) == code
    assert no_memory(error) == (code == 3 and not isinstance(error, ClientFailed | Elsewhere))


@pytest.mark.parametrize(
    ("word", "hint"),
    [("nosie", 'did you mean "noise"?'), ("zzz", "choose one of: noise, scale")],
)
def test_nearest(word: str, hint: str) -> None:
    assert nearest(word, ["scale", "noise"]) == hint
    assert "nothing to choose" in nearest(word, [])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is: é, 東京, ε", "as it is: é, 東京, ε"),
        ("  one\n\n line \t only\r\n", "one line only"),
        ("\x1b]0;title\x07\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"),
        ("\x9b31m \x00 \x7f", "\\x9b31m \\x00 \\x7f"),
        ("\u202egpj.exe\u2028two", "\\u202egpj.exe\\u2028two"),
        ("\udcff.csv", "\\udcff.csv"),  # how a name that is no text reaches Python
        ("", ""),
    ],
)
def test_what_does_not_print_is_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(text).encode("utf-8") == shown.encode("utf-8")


@pytest.mark.parametrize("letter", ["x", "\x1b", "\U000e0001", "é"])
def test_a_line_is_bounded_and_keeps_both_ends(letter: str) -> None:
    text = visible(f"a.csv:3: {letter * 10**6}; mend it")
    assert len(text) == 400
    assert text.startswith("a.csv:3: ")
    assert text.endswith("; mend it")
    assert "…" in text
    assert visible("y" * 400) == "y" * 400
