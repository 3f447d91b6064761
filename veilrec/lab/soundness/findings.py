"""Findings about an audit's own input, each as numbers and one plain sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.lab.soundness.columns import OpenAnswer, answers_in, constant, counting
from veilrec.lab.soundness.copies import Copies, copies_of, merged
from veilrec.lab.trials import Goal, People

__all__ = ["CheckedInput", "checked"]

Finding = dict[str, Any]
TOLD = 10  # columns that are named; of more only how many


class CheckedInput(NamedTuple):
    """What was found of an audit's input.

    Attributes:
        findings: As ``result.json`` keeps them, each with a sentence.
        copies: Users who are copies of one another in any reading.
        blank: ``[users]`` a mask of those of whom some reading holds nothing but zeros.
    """

    findings: list[Finding]
    copies: Copies
    blank: Tensor


def checked(
    readings: Mapping[str, Tensor],
    people: People,
    goals: Sequence[Goal],
    there: Tensor,
    columns: Sequence[str] = (),
) -> CheckedInput:
    """Look through what attackers read, ``[users, width]`` by the name of the reading.

    Args:
        readings: The readings; one that holds what is not finite is left to the attackers, who refuse it.
        people: The truth about the users.
        goals: The attributes that are attacked.
        there: ``[users]`` a mask of those of whom anything was seen.
        columns: Names of the columns, where they have any.
    """
    found: list[Finding] = []
    copies = Copies(torch.full_like(people.tags, -1), torch.zeros_like(there))
    blank = torch.zeros_like(there)
    for name, rows in readings.items():
        if not all(bool(end.isfinite()) for end in rows.aminmax()):
            continue
        ids = [] if people.places is None else counting(rows[there], people.places[there])
        own = copies_of(_left(rows, ids), there, people.tags)  # an id would tell two copies apart
        still = constant(rows[there])
        told = []
        if len(still) < rows.shape[1]:
            zeros = there & ~rows.any(1).to(there.device)
            told, blank = [*_of_copies(own), *_of_zeros(int(zeros.sum()))], blank | zeros
        told += _of_ids(ids, columns)
        told += _of_still(still, rows.shape[1], columns)
        told += [one for goal in goals for one in _of_answers(rows, goal, columns)]
        copies, lead = merged(copies, own), f"In {name}: " if len(readings) > 1 else ""
        found += [{**one, "reads": name, "sentence": lead + one["sentence"]} for one in told]
    return CheckedInput(found, copies, blank)


def _of_copies(copies: Copies) -> Iterator[Finding]:
    exact, near = int(copies.exact.sum()), int(((copies.group >= 0) & ~copies.exact).sum())
    if not exact + near:
        return
    shared = len(copies.group[copies.exact].unique())
    told = [f"{exact:,} users have an exact copy (they share {shared:,} rows)"] * (exact > 0)
    told += [f"{near:,} users have a near copy"] * (near > 0)
    said = (
        f"{' and '.join(told)}: an attacker who knows the label of one has met the other, so each verdict is "
        "also given without those of whom a copy is known; if they are the same people, keep one row of each."
    )
    yield {"kind": "copies", "exact": exact, "near": near, "sentence": said}


def _of_zeros(count: int) -> Iterator[Finding]:
    if count:
        who, whom = ("users have", "them") if count > 1 else ("user has", "that one")
        said = (
            f"{count:,} {who} a vector of zeros: nothing was learned of {whom}, so each verdict is also "
            f"given without {whom}; leave {whom} out, or look for what went wrong before."
        )
        yield {"kind": "zeros", "count": count, "sentence": said}


def _left(rows: Tensor, columns: Sequence[int]) -> Tensor:
    """The rows without some columns."""
    stay = torch.ones(rows.shape[1], dtype=torch.bool)
    stay[list(columns)] = False
    return rows if bool(stay.all()) else rows[:, stay]


def _of_still(still: Sequence[int], width: int, names: Sequence[str]) -> Iterator[Finding]:
    if not still:
        return
    said = (
        f"{_columns(still, names)} of {width:,} {_verb(still, 'says', 'say')} the same of everybody: nothing "
        f"can be read there; leave {_verb(still, 'it', 'them')} out, or look for what went wrong before."
    )
    if len(still) == width:
        said = (
            "All columns say the same of everybody: there is nothing to read, and a verdict means nothing; "
            "look for what went wrong before."
        )
    yield {"kind": "constant", "columns": still[:TOLD], "count": len(still), "sentence": said}


def _of_ids(ids: Sequence[int], names: Sequence[str]) -> Iterator[Finding]:
    if ids:
        said = (
            f"{_columns(ids, names)} {_verb(ids, 'numbers', 'number')} the users, as ids and rows of a file "
            f"do: whatever users were sorted by can be read there; leave {_verb(ids, 'it', 'them')} out of "
            "the vectors."
        )
        yield {"kind": "ids", "columns": ids[:TOLD], "count": len(ids), "sentence": said}


def _of_answers(rows: Tensor, goal: Goal, names: Sequence[str]) -> Iterator[Finding]:
    known = goal.label >= 0 if goal.classes else ~goal.label.isnan()
    for answer in answers_in(rows[known], goal.label[known]):
        fix = "what is found of it is the answer read off; leave it out of the vectors."
        yield {
            "kind": "answer",
            "attribute": goal.name,
            "how": answer.how,
            "columns": answer.columns[:TOLD],
            "count": len(answer.columns),
            "sentence": f"{_answer(answer, goal, names)}: {fix}",
        }


def _answer(answer: OpenAnswer, goal: Goal, names: Sequence[str]) -> str:
    what = goal.name if answer.label is None else f"{goal.name} = {goal.names[answer.label]}"
    if answer.how == "sum":
        return f"A sum over all columns with fixed weights is {what} itself"
    where = _columns(answer.columns, names)
    if answer.how == "same":
        return f"{where} {_verb(answer.columns, 'is', 'are each')} {what} itself"
    if not goal.classes:
        return f"{where} {_verb(answer.columns, 'rises or falls', 'rise or fall')} with {what} throughout"
    return f"{where} alone {_verb(answer.columns, 'tells', 'tell each')} {what} without a mistake"


def _columns(columns: Sequence[int], names: Sequence[str]) -> str:
    """``Column 5``, ``Columns 1, 2 and 3``, or how many where they are many; numbers count from 1."""
    called = [f'"{names[k]}"' if k < len(names) else str(k + 1) for k in columns]
    if len(called) == 1:
        return f"Column {called[0]}"
    if len(called) > TOLD:
        return f"{len(called):,} columns"
    return f"Columns {', '.join(called[:-1])} and {called[-1]}"


def _verb(columns: Sequence[int], one: str, several: str) -> str:
    return one if len(columns) == 1 else several
