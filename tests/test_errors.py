"""Errors are one line, name the place and the way out, and carry the exit code."""

from __future__ import annotations

import pytest

from veilrec.errors import BadInput, ClientFailed, Corrupted, VeilrecError, nearest


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
