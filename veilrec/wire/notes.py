"""Notes: what goes with a letter beside its message, so that its reader knows which run and try it is of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from veilrec.errors import BadInput
from veilrec.wire.frame import shown

__all__ = ["LONGEST", "Notes", "fingerprint", "notes"]

LONGEST = {"run": 200, "recipe": 64, "missed": 1 << 12, "attempt": 9}  # letters of each note
FORMS = {
    "run": r"[^\ud800-\udfff]*",  # halves of letters: not to be written as UTF-8
    "recipe": r"([0-9a-f]{64})?",
    "missed": r"([0-9]{1,9}( [0-9]{1,9})*)?",
    "attempt": r"[1-9][0-9]{0,8}",
}


class Notes(NamedTuple):
    """The notes of a letter, read.

    Attributes:
        run: The name of the run; empty where the letter names none.
        recipe: A hash of the recipe's text; empty likewise.
        missed: Rounds, counted from 1, whose answer did not count.
        attempt: How often the letter's round was begun, this time included.
    """

    run: str = ""
    recipe: str = ""
    missed: tuple[int, ...] = ()
    attempt: int = 1

    @classmethod
    def of(cls, told: Mapping[str, str], sender: str = "letter") -> Notes:
        """The notes in the header of a letter.

        Raises:
            BadInput: Where there is one that is not known, too long, or not what it should be.
        """
        for name, note in told.items():
            form = FORMS.get(name)
            if form is None:
                raise BadInput(sender, f"a note '{shown(name)}' that nobody knows", "leave it out")
            if len(note) > LONGEST[name] or not re.fullmatch(form, note, re.DOTALL):
                what = f"its note '{name}' is '{shown(note)}'"
                raise BadInput(
                    sender, what, f"give what `notes` writes, of {LONGEST[name]:,} letters at most"
                )
        missed = tuple(int(round) for round in told.get("missed", "").split())
        return cls(told.get("run", ""), told.get("recipe", ""), missed, int(told.get("attempt", "1")))


def notes(run: str = "", recipe: str = "", missed: Sequence[int] = (), attempt: int = 1) -> dict[str, str]:
    """Notes that go with a letter, beside its message; those that say nothing are left out.

    Args:
        run: The name of the run.
        recipe: The text of its recipe, of which the letter carries a hash.
        missed: Rounds, counted from 1, whose answer did not count: the latest are enough. A device notes in
            its ledger that what it sent in them was for nothing.
        attempt: How often the letter's round was begun, this time included.

    Raises:
        BadInput: Where a reader would refuse them.
    """
    told = {"run": run, "recipe": fingerprint(recipe), "missed": " ".join(map(str, missed))}
    told["attempt"] = str(attempt) if attempt != 1 else ""
    found = {name: note for name, note in told.items() if note}
    Notes.of(found)
    return found


def fingerprint(recipe: str) -> str:
    """A hash of a recipe's text; empty where there is none."""
    return hashlib.sha256(recipe.encode()).hexdigest() if recipe else ""
