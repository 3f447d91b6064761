"""Tables about datasets, which ``veilrec data`` shows on the standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veilrec.cli.show.tables import console, table

if TYPE_CHECKING:
    from veilrec.datasets.delimited import Understood

__all__ = ["print_datasets", "print_log", "print_reading"]

WIDE = 40  # letters of a field that are shown


def print_datasets(rows: Sequence[Mapping[str, Any]]) -> None:
    """All datasets, one a row."""
    shown = table("dataset", "users", "items", "events", "where", "terms", right=("users", "items", "events"))
    for row in rows:
        counts = (f"{row[name]:,}" if row[name] is not None else "" for name in ("users", "items", "events"))
        shown.add_row(row["name"], *counts, row["where"], row["terms"])
    console().print(shown)


def print_log(about: Mapping[str, Any]) -> None:
    """One dataset: counts, long tail, attributes, first rows and load report."""
    out = console()
    out.print(
        f"{about['name']}: {about['users']:,} users, {about['items']:,} items, {about['events']:,} events"
    )
    period = f"from {about['period'][0]} to {about['period'][1]}" if about["period"] else "no times"
    out.print(f"{about['density']:.2%} of all pairs; {period}")
    tail = table("events", "least", "median", "mean", "most", right=("least", "median", "mean", "most"))
    for name in ("user", "item"):
        spread = about[f"events_per_{name}"]
        tail.add_row(f"per {name}", *(f"{value:,.0f}" for value in spread.values()))
    out.print(tail)
    out.print(f"A tenth of the items has {about['share_of_top_tenth_of_items']:.0%} of the events.")
    if about["attributes"]:
        out.print(_attributes(about["attributes"], about["users"]))
    if about["values"]:
        out.print(_values(about["values"]))
    out.print(_rows(about["first_rows"]))
    for sentence in about["report"] or ["Nothing was dropped."]:
        out.print(f"- {sentence}", markup=False)


def print_reading(reading: Understood, attributes: Sequence[str] = ()) -> None:
    """The first rows of a file as understood, on the standard error: the result is yet to come."""
    role_of = {name: role for role, name in reading.roles.items()}
    out = console(stderr=True)
    separator = {"\t": "tab", " ": "space"}.get(reading.layout.shown, reading.layout.shown)
    header = "the first line has the names" if reading.layout.header else "no header"
    out.print(f"{reading.source.where}: separator {separator!r}, {header}", markup=False)
    names = [name for name in reading.layout.names if name in role_of]
    shown = table(*(f"{role_of[name]} = {name}" for name in names))
    for fields in reading.first:
        by_name = dict(zip(reading.layout.names, fields, strict=False))
        shown.add_row(*(_text(by_name.get(name, "")) for name in names))
    out.print(shown)
    used = {*role_of, *attributes}
    if others := [name for name in reading.layout.names if name not in used]:
        out.print(f"Not used: {', '.join(others)[:200]}", markup=False)


def _attributes(attributes: Mapping[str, Mapping[str, int]], users: int) -> Any:
    shown = table("attribute", "class", "users", "share", right=("users", "share"))
    for name, classes in attributes.items():
        for place, (label, count) in enumerate(classes.items()):
            shown.add_row(
                _text("" if place else name), _text(label), f"{count:,}", f"{count / max(1, users):.1%}"
            )
    return shown


def _values(values: Mapping[str, Mapping[str, float]]) -> Any:
    columns = ("known", "least", "median", "mean", "most")
    shown = table("continuous", *columns, right=columns)
    for name, spread in values.items():
        numbers = (f"{spread[column]:,.6g}" if column in spread else "" for column in columns)
        shown.add_row(_text(name), *numbers)
    return shown


def _rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    shown = table(*(rows[0] if rows else ("user", "item")), right=("rating",))
    for row in rows:
        shown.add_row(*(_text(f"{value:g}" if isinstance(value, float) else value) for value in row.values()))
    return shown


def _text(value: str) -> Any:
    """A field as it is: brackets in it are no markup."""
    from rich.text import Text

    return Text(value if len(value) <= WIDE else value[: WIDE - 1] + "…")
