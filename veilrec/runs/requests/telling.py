"""Telling: what a request came to, in plain words and for a receipt."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from torch import Tensor

from veilrec.runs.fingerprint import describe
from veilrec.runs.requests.choosing import Choice

__all__ = ["done_of", "is_not", "notes_of", "now"]


def is_not(attributes: Collection[str]) -> list[str]:
    """What a request for some attributes is not, as sentences.

    >>> is_not(["gender", "age"])[0]
    'What was erased from vectors are 2 inferred attributes.'
    """
    one = len(attributes) == 1
    erased = "is one inferred attribute" if one else f"are {len(attributes)} inferred attributes"
    tells = "it" if one else "them"
    return [
        f"What was erased from vectors {erased}.",
        f"The history of these users stays, and tells {tells} to whoever sees it or lists made of it.",
        "This is no deletion of data under any law.",
    ]


def now() -> str:
    """The time, as receipts have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def done_of(choice: Choice, changed: Tensor) -> dict[str, Any]:
    """What was done, for a receipt: how many, by which eraser, and why that one."""
    request, eraser = choice.request, choice.eraser
    return {
        "eraser": describe(eraser),
        "why": choice.why,
        "asked": int(request.moves.sum()),
        "changed": int(changed.sum()),
        "unchanged": int((~changed).sum()),
        "secret": eraser.secret,
        "difference_tells": eraser.needs_labels,
    }


def notes_of(choice: Choice) -> list[str]:
    """What somebody who asked should know, as sentences."""
    request, eraser, notes = choice.request, choice.eraser, []
    for name, label in request.labels.items():
        unknown = int((request.moves & (label < 0)).sum())
        if unknown and eraser.needs_labels:
            notes.append(
                f"of {unknown:,} who ask no {name} is known: by this method they stay where they are"
            )
    if eraser.needs_labels:
        notes.append("whoever has the old and new vectors can tell each person's class by comparing them")
    if eraser.exact:
        notes.append("classes become exactly equal, by which what leaks is turned round: --method lethe")
    if not eraser.secret:
        notes.append("nothing secret was drawn: whoever has the input can repeat it")
    if len(request.labels) > 1:
        notes.append("several attributes are forgotten one after the other")
    return notes
