"""Vectors and attributes of the same users, joined by exact ids; what did not match is counted and said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilrec.base.keys import Keys
from veilrec.datasets.reading.layout import plain
from veilrec.datasets.reading.people import UNKNOWN, Attribute
from veilrec.errors import BadInput
from veilrec.interactions import id_hashes
from veilrec.lab.attributes import Described
from veilrec.lab.vectors import Vectors

__all__ = ["FEWEST", "Audience", "join", "matched", "with_ids"]

FEWEST = 20  # users, below which nothing is attacked
RARE = 5  # users of one class, below which it is left out
EASED: Mapping[str, Callable[[str], str]] = {  # how ids of two files may differ, and what makes them alike
    "leading zeros": lambda name: name.lstrip("0") or "0",
    "upper and lower case": str.casefold,
    'a ".0" at the end': lambda name: name.removesuffix(".0"),
    "letters before the number": lambda name: name.lstrip("_-: " + "".join(map(chr, range(65, 123)))),
}


@dataclass(frozen=True)
class Audience:
    """Users with a vector and a description, in the order of their ids.

    Attributes:
        vectors: ``[users, width]`` float32.
        ids: ``[users]``.
        labels, classes: ``[users]`` classes by attribute, -1 where unknown, and their names.
        values: ``[users]`` numbers by attribute, NaN where unknown.
        notes: What was left out on the way, as sentences.
        columns: Names of the vectors' columns, where they have any.
        tensor: Which array of their file they are, where it has several.
    """

    vectors: NDArray[np.float32]
    ids: list[str]
    labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    tensor: str = ""


def with_ids(vectors: Vectors, ids: Sequence[str], where: Path) -> Vectors:
    """Vectors whose ids come from a file of their own."""
    if vectors.ids is not None:
        raise BadInput("--ids", f"{Path(vectors.where).name} has ids of its own", "leave --ids out")
    if len(ids) != len(vectors.values):
        fix = "is its first line a header?" if len(ids) == len(vectors.values) + 1 else "give one id a vector"
        raise BadInput(where, f"{len(ids):,} ids for {len(vectors.values):,} vectors", fix)
    return replace(vectors, ids=list(ids))


def join(vectors: Vectors, described: Described, *, by_position: bool = False, most: int = 0) -> Audience:
    """The users of both files; with `most`, at most so many of them, drawn by a hash of their ids.

    Raises:
        BadInput: Where ids are missing or do not fit, or too few users are left.
    """
    ids, here, there = matched(vectors, described, by_position=by_position)
    both = sorted(here.keys() & there.keys())
    notes = [*_losses(vectors.where, len(ids), described, len(both)), *described.notes]
    if most and len(both) > most:
        notes.append(f"{most:,} of {len(both):,} users were drawn by their ids: --users 0 takes all")
        both = _drawn(both, most)
    rows = np.array([here[name] for name in both])
    known = np.array([there[name] for name in both])
    found = _tidied(vectors.values[rows], both, described, known, notes)
    return replace(found, columns=vectors.columns, tensor=vectors.tensor)


def matched(
    vectors: Vectors, described: Described, *, by_position: bool = False
) -> tuple[list[str], dict[str, int], dict[str, int]]:
    """Whose vectors they are, and the row of each user in either file.

    Raises:
        BadInput: Where ids are missing or do not fit, or too few users are in both.
    """
    _refuse_answers(vectors, described)
    ids = _positions(vectors, described) if by_position else vectors.ids
    if ids is None:
        fix = "give --ids FILE with one id a line, or --by-position if row n is the same user in both files"
        raise BadInput(vectors.where, "has no ids, so nothing says whose vector is whose", fix)
    _refuse_shifted(vectors.where, ids, described)
    here = {name: row for row, name in enumerate(ids)}
    there = {name: row for row, name in enumerate(described.ids)}
    if (both := len(here.keys() & there.keys())) < FEWEST:
        raise _strangers(vectors.where, ids, described, both)
    return list(ids), here, there


def _positions(vectors: Vectors, described: Described) -> list[str]:
    """The ids of the attributes for the rows of the vectors, because somebody said so."""
    name, other = (Path(file.where).name for file in (vectors, described))
    if vectors.ids is not None:
        raise BadInput("--by-position", f"{name} has ids of its own", "leave it out: ids are safer")
    rows, people = len(vectors.values), len(described.ids)
    if rows != people:
        what = f"{name} has {rows:,} rows and {other} {people:,}"
        raise BadInput("--by-position", what, "give the ids of the vectors with --ids FILE")
    return described.ids


def _refuse_answers(vectors: Vectors, described: Described) -> None:
    """A column of the vectors that is an attribute is the answer itself."""
    asked = {plain(name): name for name in (*described.labels, *described.values)}
    for name in vectors.columns:
        if not name.isdecimal() and plain(name) and plain(name) in asked:  # a number is only a place
            what = f'column "{name}" is an attribute: the attack would read the answer'
            raise BadInput(vectors.where, what, "leave it out of the vectors")


def _refuse_shifted(where: str, ids: Sequence[str], described: Described) -> None:
    """Row numbers from 0 on one side and from 1 on the other would match, each with a neighbour's."""
    here, there = _span(ids), _span(described.ids)
    if here and there and {here[0], there[0]} == {0, 1} and here[1] - here[0] == there[1] - there[0]:
        what = f"ids run from {here[0]} to {here[1]}, those of {Path(described.where).name}"
        what += f" from {there[0]} to {there[1]}: counted from another start, each would get a neighbour's"
        raise BadInput(where, what, "number both alike, or give the right ids with --ids FILE")


def _span(ids: Sequence[str]) -> tuple[int, int] | None:
    """The first and the last of ids that count without a gap."""
    if not all(name.isascii() and name.isdecimal() for name in ids):
        return None
    numbers = {int(name) for name in ids}
    low, high = min(numbers), max(numbers)
    return (low, high) if high - low + 1 == len(ids) else None


def _strangers(where: str, ids: Sequence[str], described: Described, both: int) -> BadInput:
    """Too few ids in common, with the likely reason."""
    other = Path(described.where).name
    what = f'{both or "no"} ids in common with {other} ("{ids[0]}" here, "{described.ids[0]}" there)'
    for difference, ease in EASED.items():
        if (alike := len({ease(name) for name in ids} & {ease(name) for name in described.ids})) >= FEWEST:
            fix = f"{alike:,} would match but for {difference}: write them alike in both files"
            return BadInput(where, what, fix)
    return BadInput(where, what, f"at least {FEWEST} are needed; ids match only if written alike")


def _drawn(ids: Sequence[str], most: int) -> list[str]:
    """Some of the ids, the same ones whatever the order of the rows and whoever else is there."""
    keys = Keys.seed(0).fold("audience").fold(id_hashes(ids)).value
    return sorted(ids[row] for row in keys.argsort(stable=True)[:most].tolist())


def _losses(where: str, rows: int, described: Described, both: int) -> list[str]:
    name, other = Path(where).name, Path(described.where).name
    notes = []
    if rows > both:
        notes.append(f"{rows - both:,} of {rows:,} vectors in {name} have no row in {other}: left out")
    if (people := len(described.ids)) > both:
        notes.append(f"{people - both:,} of {people:,} users in {other} have no vector: left out")
    return notes


def _tidied(
    vectors: NDArray[np.float32],
    ids: list[str],
    described: Described,
    rows: NDArray[np.int64],
    notes: list[str],
) -> Audience:
    """Classes that enough of the joined users have, and attributes that have enough left of them."""
    labels, classes, values = {}, {}, {}
    for name, attribute in described.labels.items():
        kept, dropped = _common(Attribute(attribute.codes[rows], attribute.classes))
        notes += [f'class "{word}" of {name} has {count} users: left out' for word, count in dropped]
        if _enough(name, int((kept.codes >= 0).sum()), len(kept.classes), described, notes):
            labels[name], classes[name] = kept
    for name, column in described.values.items():
        found = column[rows]
        there = found[~np.isnan(found)]
        if _enough(name, len(there), len(np.unique(there)), described, notes):
            values[name] = found
    if not labels and not values:
        raise BadInput(described.where, "no column can be an attribute", "; ".join(notes) or "add one")
    return Audience(vectors, ids, labels, classes, values, tuple(notes))


def _common(attribute: Attribute) -> tuple[Attribute, list[tuple[str, int]]]:
    """An attribute without its rare classes, and those with their counts."""
    counts = np.bincount(attribute.codes[attribute.codes >= 0], minlength=len(attribute.classes))
    stay = counts >= RARE
    number = np.append(np.where(stay, stay.cumsum() - 1, UNKNOWN), UNKNOWN)  # the last one for the unknown
    names = tuple(word for word, keep in zip(attribute.classes, stay, strict=True) if keep)
    dropped = [
        (word, int(count)) for word, count in zip(attribute.classes, counts, strict=True) if count < RARE
    ]
    return Attribute(number[attribute.codes], names), [entry for entry in dropped if entry[1]]


def _enough(name: str, users: int, different: int, described: Described, notes: list[str]) -> bool:
    """Whether an attribute has users and classes enough to be attacked; one asked for must have."""
    if users >= FEWEST and different >= 2:
        return True
    what = f"{name} is known of {users} joined users, with {different} different values"
    if name in described.asked:
        fix = f"{FEWEST} users and two values are needed, and {RARE} users of each class"
        raise BadInput(described.where, what, fix)
    notes.append(f"{what}: not taken as an attribute")
    return False
