"""Roles of columns: the user, the item, the rating, the time; by name, by place, or as told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veilrec.datasets.reading.layout import Layout, is_number, plain
from veilrec.errors import BadInput, nearest

__all__: list[str] = []

ALIASES: Mapping[str, tuple[str, ...]] = {  # as `plain` writes them, the surest first
    "user": (
        *("userid", "user", "uid", "useridx", "reviewerid", "customerid", "visitorid", "memberid"),
        *("accountid", "personid", "profileid", "customer", "reviewer", "member", "username", "usersha1"),
        "sessionid",
    ),
    "item": (
        *("itemid", "item", "iid", "itemidx", "movieid", "movie", "filmid", "film", "parentasin", "asin"),
        *("productid", "product", "artistid", "trackid", "songid", "bookid", "isbn", "businessid"),
        *("newsid", "articleid", "adid", "adgroupid", "artist", "track", "song", "book"),
    ),
    "rating": (
        *("rating", "ratings", "score", "stars", "overall", "rate", "weight", "plays", "playcount"),
        "count",
    ),
    "time": (
        *("timestamp", "time", "unixreviewtime", "datetime", "date", "reviewdate", "reviewtime", "ts"),
        *("createdat", "eventtime", "ratingtime"),
    ),
    "title": ("title", "movietitle", "itemname", "name", "itemtitle", "producttitle", "label", "headline"),
}
WORDS = frozenset(alias for aliases in ALIASES.values() for alias in aliases)
RECENT = 100_000_000  # no rating is as large as seconds since 1970


def column(where: str, layout: Layout, told: str) -> str:
    """The column a person means: its exact name, its name without case and punctuation, or its number."""
    if told in layout.names:
        return told
    alike = [name for name in layout.names if plain(name) == plain(told)]
    if len(alike) == 1:
        return alike[0]
    if told.isdecimal() and 1 <= int(told) <= len(layout.names):
        return layout.names[int(told) - 1]
    if not layout.header and not told.isdecimal() and layout.names == _numbered(layout):
        fix = f"name columns by number, 1 to {len(layout.names)}; --header says that line 1 has names"
        raise BadInput(where, f'there is no column "{told}": read as a file without a header', fix, line=1)
    raise BadInput(where, f'there is no column "{told}"', nearest(told, layout.names), line=1)


def _numbered(layout: Layout) -> tuple[str, ...]:
    """The names of columns that have none."""
    return tuple(str(place + 1) for place in range(len(layout.names)))


def guess(layout: Layout, role: str) -> str | None:
    """The column whose name says that it plays a role."""
    by_plain = {plain(name): name for name in reversed(layout.names)}
    return next((by_plain[alias] for alias in ALIASES[role] if alias in by_plain), None)


def roles(where: str, layout: Layout, first: Sequence[str], told: Mapping[str, str | None]) -> dict[str, str]:
    """The column of each role: as `told`, else by its name, else (without a header) by its place.

    Args:
        where: The file, for errors.
        layout: Its columns.
        first: The fields of its first row.
        told: Names given by a person, by role; None to guess. ``-`` for a column that shall not be used.
    """
    found = {role: column(where, layout, name) for role, name in told.items() if name and name != "-"}
    guessed = {role: guess(layout, role) for role in told} if layout.header else _by_place(layout, first)
    for role, name in guessed.items():
        if told.get(role) is None and name is not None and name not in found.values():
            found[role] = name
    for role in ("user", "item"):
        if role not in found:
            fix = f"name it with --{role}; the columns are {', '.join(layout.names)[:200]}"
            raise BadInput(where, f"no column is known to hold the {role}s", fix, line=1)
    _refuse_shared(where, found)
    return found


def _by_place(layout: Layout, first: Sequence[str]) -> dict[str, str | None]:
    """User, item, rating, time, as most files without a header have them."""
    names = layout.names
    if len(names) > 4:
        return {}
    if len(names) == 3 and not (is_number(first[2]) and abs(float(first[2])) < RECENT):
        return dict(zip(("user", "item", "time"), names, strict=True))
    return dict(zip(("user", "item", "rating", "time"), names, strict=False))


def _refuse_shared(where: str, found: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    for role, name in found.items():
        if name in owners:
            raise BadInput(
                where, f'column "{name}" cannot be both {owners[name]} and {role}', f"change --{role}"
            )
        owners[name] = role
