"""MIND: who clicked on which news, in order; no attributes of people.

Wu et al., "MIND: A Large-scale Dataset for News Recommendation", ACL 2020, as published: ``behaviors.tsv``
with what each user had clicked on before each visit, ``news.tsv`` with titles. PTF-FSR is measured on some of
its users and does not say which.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from veilrec.base.limits.bounds import Least, bounded
from veilrec.datasets.common.given_order import in_given_order
from veilrec.datasets.common.published import without_header
from veilrec.datasets.reading.archives import Files, Folder, files
from veilrec.datasets.reading.assemble import Log, Titles, sound_ids, titles_of
from veilrec.datasets.reading.cores import enough, left_out
from veilrec.datasets.reading.table import Kind, TextTable, Tokens
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["mind"]

VISITS, NEWS = "behaviors.tsv", "news.tsv"
VISIT = ("visit", "user", "time", "history", "shown")
ARTICLE = ("item", "category", "subcategory", "title", "abstract", "address", "of title", "of abstract")
ORDER = "no times: a user's clicks are in the order of the longest history, and the last one is held out"


@bounded("data")
def mind(
    path: Path, *, longest: Least = 20, least_of_user: Least = 5, least_of_item: Least = 1
) -> Interactions:
    r"""Each user's longest history of clicks, the first click on each article.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     visits = "1\tU7\t11/12/2019 2:14:46 PM\tN3 N8 N3 N5\tN9-1\n"
    ...     _ = (Path(folder) / "behaviors.tsv").write_text(visits)
    ...     log = mind(Path(folder), least_of_user=1)
    >>> log.user_ids, [log.item_ids[item] for item in log.item]
    (['U7'], ['N3', 'N8', 'N5'])

    Args:
        path: The folder ``MINDsmall_train`` or ``mind``, its zip, or a folder that holds one of them. Files
            may be gzipped.
        longest: The latest clicks of a user that are kept.
        least_of_user, least_of_item: Users with fewer different articles, and articles with fewer users, are
            left out, until nothing more falls out. A user must have as many before the cut to the `longest`.
    """
    folder = _files(Path(path))
    visits = _read(folder, VISITS, VISIT, ("user", "history"))
    sound_ids(visits, "user")
    clicks, bare = _clicks(visits, longest, least_of_user)
    log = Log(clicks, "user", "item")
    stay = enough(log, min(least_of_user, longest), least_of_item, "clicked on")
    reasons = {"of users or items with too few others": int((~stay).sum())}
    notes = [*left_out("user", {"with too few clicks": bare}), *left_out("row", reasons), ORDER]
    return in_given_order("mind", log, stay, titles=_titles(folder), notes=notes)


def _files(path: Path) -> Files:
    """The folder or zip with the visits."""
    for folder in (path, path / "mind"):
        if (folder / f"{VISITS}.gz").is_file():
            return Folder(folder)
    return files(path, VISITS, "mind")


def _read(found: Files, name: str, columns: tuple[str, ...], wanted: tuple[str, ...]) -> TextTable:
    """Some columns of a file, which may be gzipped."""
    present = {PurePosixPath(file).name for file in found.names}
    source = found.read(name if name in present else f"{name}.gz")
    kinds: dict[str, Kind] = dict.fromkeys(wanted, "token")
    return without_header(source, "\t", columns, kinds)


def _clicks(visits: TextTable, longest: int, least: int) -> tuple[TextTable, int]:
    """A row for each click of each user's longest history; and how many users have too short a one."""
    users, histories = visits.tokens["user"], visits.tokens["history"]
    clicks = [list(dict.fromkeys(text.split())) for text in histories.names]
    most: dict[int, list[str]] = {}
    for user, history in zip(users.codes.tolist(), histories.codes.tolist(), strict=True):
        if len(clicks[history]) > len(most.get(user, ())):
            most[user] = clicks[history]
    stay = {user: items[-longest:] for user, items in most.items() if len(items) >= least}
    if not stay:
        raise BadInput("data.least_of_user", f"nobody clicked on {least} articles", "give a smaller number")
    book: dict[str, int] = {}
    item = [book.setdefault(name, len(book)) for items in stay.values() for name in items]
    owner = np.repeat(np.arange(len(stay), dtype=np.int32), [len(items) for items in stay.values()])
    tokens = {
        "user": Tokens(owner, [users.names[user] for user in stay]),
        "item": Tokens(np.array(item, dtype=np.int32), list(book)),
    }
    return replace(visits, tokens=tokens, length=len(item)), len(users.names) - len(stay)


def _titles(found: Files) -> Titles | None:
    """Titles, where the articles are there."""
    present = {PurePosixPath(file).name for file in found.names}
    if not present & {NEWS, f"{NEWS}.gz"}:
        return None
    return titles_of(_read(found, NEWS, ARTICLE, ("item", "title")), "item", "title")
