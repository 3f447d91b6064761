"""Errors are one line, name the place and the way out, and carry the exit code."""

from __future__ import annotations

import pytest

from veilrec.errors import BadInput, ClientFailed, Corrupted, VeilrecError, nearest, visible


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
    assert [e.code for e in (VeilrecError, BadInput, Corrupted)] == [1, 2, 4]


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
