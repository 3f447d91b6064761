"""Amazon reviews of 2014 and later: who bought what and when; no attributes of people.

McAuley et al., "Image-based Recommendations on Styles and Substitutes", SIGIR 2015, in three forms: reviews
as JSON lines (``reviews_Musical_Instruments_5.json``), ratings as CSV, and cuts that others have split into
``train.txt``, ``valid.txt`` and ``test.txt`` (user, item, time), as studies of sequences do. PTF-FSR is
measured on such cuts. Names and texts of reviewers are never read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from veilrec.base.limits.bounds import Least, Seed, bounded
from veilrec.datasets.common.given_order import in_given_order
from veilrec.datasets.common.published import with_header, without_header
from veilrec.datasets.reading.archives import Source, read
from veilrec.datasets.reading.assemble import Log, assemble, sound_ids
from veilrec.datasets.reading.cores import cut, enough, left_out
from veilrec.datasets.reading.table import Kind, TextTable, Tokens
from veilrec.datasets.reading.times import times_of
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["amazon"]

PARTS = ("train.txt", "valid.txt", "test.txt")
MAPS = {"user": "umap.json", "item": "imap.json"}
COLUMNS = ("user", "item", "rating", "time")
LATER = {"user": "user_id", "item": "parent_asin", "time": "timestamp"}  # the header of 2023's files
KINDS: dict[str, Kind] = {"user": "token", "item": "token", "time": "number"}
REVIEW = ("reviewerID", "asin", "unixReviewTime")
GIVEN = "events keep the order of the files, which decides what is held out among those of one day"


@bounded("data")
def amazon(
    path: Path,
    *,
    ties: Literal["file", "hash"] = "file",
    least_of_user: Least = 5,
    least_of_item: Least = 1,
    split_seed: Seed = 0,
) -> Interactions:
    r"""Reviews of one category, in any of the three forms.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "reviews.json"
    ...     _ = path.write_text('{"reviewerID": "A1", "asin": "B7", "unixReviewTime": 1385856000}\n')
    ...     log = amazon(path, least_of_user=1)
    >>> log.user_ids, log.item_ids, log.time
    (['A1'], ['B7'], tensor([1385856000]))

    Args:
        path: The file, or a folder that holds one, or the three parts of a cut (plain or gzipped, with
            ``umap.json`` and ``imap.json`` for the original ids, if they are there).
        ties: Times are whole days, so that many last events share theirs. In a cut the files say which came
            last; with ``hash`` a keyed hash does, as it does for the other forms.
        least_of_user, least_of_item: Users with fewer different items, and items with fewer users, are left
            out, until nothing more falls out.
        split_seed: Decides the order of events on the same day, where a hash does.
    """
    folder = Path(path)
    cut_by_others = _part(folder, PARTS[0]) is not None
    table = _parts(folder) if cut_by_others else _table(_file(folder))
    log = Log(table, "user", "item", time=times_of(table, "time"))
    stay = enough(replace(log, time=None), least_of_user, least_of_item, "bought")
    gone = left_out("row", {"of users or items with too few others": int((~stay).sum())})
    if cut_by_others and ties == "file":
        return in_given_order("amazon", log, stay, notes=[*gone, GIVEN])
    return assemble("amazon", cut(log, stay), absent=[*gone, *_tied(cut(log, stay))], split_seed=split_seed)


def _part(folder: Path, name: str) -> Path | None:
    """A file of a folder, plain or gzipped."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _parts(folder: Path) -> TextTable:
    """The three parts as one table, in which each user's last two rows are those that others held out."""
    tables = []
    for name in PARTS:
        if (found := _part(folder, name)) is None:
            raise BadInput(folder, f"there is no {name} here", "give all three parts")
        table = without_header(read(found), "\t", tuple(KINDS), KINDS)
        for column in MAPS:
            sound_ids(table, column)
        tables.append(table)
    whole = _joined(tables)
    _refuse_other_splits(folder, whole, [table.length for table in tables])
    named = {column: _named(folder, column, whole.tokens[column]) for column in MAPS}
    return replace(whole, tokens=named)


def _joined(tables: list[TextTable]) -> TextTable:
    """The rows of several tables with the same columns, one after another."""
    tokens = {}
    for column in MAPS:
        names = list(dict.fromkeys(name for table in tables for name in table.tokens[column].names))
        place = {name: number for number, name in enumerate(names)}
        codes = [
            np.array([place[name] for name in table.tokens[column].names], np.int32)[
                table.tokens[column].codes
            ]
            for table in tables
        ]
        tokens[column] = Tokens(np.concatenate(codes), names)
    times = np.concatenate([table.numbers["time"] for table in tables])
    length = sum(table.length for table in tables)
    return replace(tables[0], tokens=tokens, numbers={"time": times}, length=length)


def _refuse_other_splits(folder: Path, whole: TextTable, lengths: list[int]) -> None:
    """Refuse a cut in which somebody is not held out once in each part: others' tables would not be ours."""
    users = whole.tokens["user"]
    ends = np.cumsum(lengths)
    for name, first, last in zip(PARTS[1:], ends[:-1], ends[1:], strict=True):
        counts = np.bincount(users.codes[first:last], minlength=len(users.names))
        if (counts != 1).any():
            odd = int((counts != 1).argmax())
            what = f"{name} has {counts[odd]} rows of user {users.names[odd]}"
            raise BadInput(folder, what, "give a cut that holds out one event of each user in each part")


def _named(folder: Path, column: str, tokens: Tokens) -> Tokens:
    """Numbers of a cut as the original ids, where a file beside it has them."""
    if (found := _part(folder, MAPS[column])) is None:
        return tokens
    source = read(found)
    try:
        numbers: Mapping[str, int] = json.loads(source.data)
        names = {str(number): name for name, number in numbers.items()}
        return Tokens(tokens.codes, [names[number] for number in tokens.names])
    except (ValueError, AttributeError, KeyError, RecursionError) as error:
        what = f"does not give an id for each {column}: {str(error)[:60]}"
        raise BadInput(source.where, what, "leave the file out, or give the one that belongs here") from error


def _file(path: Path) -> Source:
    """The one file of a folder, or the file itself."""
    if not path.is_dir():
        return read(path)
    found = sorted(
        file for file in path.iterdir() if file.name.removesuffix(".gz").endswith((".json", ".csv"))
    )
    if len(found) != 1:
        listed = ", ".join(file.name for file in found) or "none"
        raise BadInput(path, f"one file of reviews is wanted, and there are: {listed}", "name the file")
    return read(found[0])


def _table(source: Source) -> TextTable:
    """Reviews as JSON lines, or ratings as CSV with or without a header."""
    head = source.data[:1024].lstrip(b"\xef\xbb\xbf \r\n")
    if head.startswith(b"{"):
        table = without_header(_fields(source), "\t", tuple(KINDS), KINDS)
    elif head.startswith(LATER["user"].encode()):
        table = _renamed(with_header(source, ",", {LATER[column]: kind for column, kind in KINDS.items()}))
    else:
        table = without_header(source, ",", COLUMNS, KINDS)
    for column in MAPS:
        sound_ids(table, column)
    return table


def _renamed(table: TextTable) -> TextTable:
    """A table of 2023 under the names of the others."""
    ours = {theirs: column for column, theirs in LATER.items()}
    names = tuple(ours.get(name, name) for name in table.layout.names)
    return replace(
        table,
        layout=replace(table.layout, names=names),
        tokens={ours[name]: tokens for name, tokens in table.tokens.items()},
        numbers={ours[name]: numbers for name, numbers in table.numbers.items()},
    )


def _fields(source: Source) -> Source:
    """JSON lines as rows of user, item and time, so that line n stays line n."""
    rows = []
    for line, text in enumerate(source.data.splitlines(), 1):
        try:
            review = json.loads(text)
            fields = [str(review[name]) for name in REVIEW]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            what = f"not a review: {type(error).__name__} {str(error)[:60]}"
            raise BadInput(
                source.where, what, f"give an object with {', '.join(REVIEW)}", line=line
            ) from error
        if any("\t" in field or "\n" in field for field in fields):
            raise BadInput(source.where, "an id holds a tab", "correct it", line=line)
        rows.append("\t".join(fields))
    return Source(source.where, "\n".join([*rows, ""]).encode())


def _tied(log: Log) -> list[str]:
    """A sentence on how often a hash decides what is held out."""
    assert log.time is not None  # every form has times
    user = log.table.tokens[log.user].codes
    order = np.lexsort((log.time, user))
    last = np.flatnonzero(np.diff(user[order], append=-1))  # the place of each one's last event
    two = last[last > 0]
    tied = (user[order][two] == user[order][two - 1]) & (log.time[order][two] == log.time[order][two - 1])
    if not tied.any():
        return []
    share = f"{int(tied.sum()):,} of {len(last):,} users have their last two events at the same time"
    return [f"{share}: a keyed hash says which is held out"]
