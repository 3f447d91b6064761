"""Any text with columns: CSV, TSV and their kin, with guesses that are shown and can be overruled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from veilrec.base.limits.bounds import Border, Seed, bounded
from veilrec.datasets.reading.archives import Archive, Source, is_zip, read
from veilrec.datasets.reading.assemble import Log, Titles, assemble, sound_ids, titles_of
from veilrec.datasets.reading.columns import WORDS, column, guess, roles
from veilrec.datasets.reading.layout import FileFormat, Layout, is_number, plain, understand
from veilrec.datasets.reading.people import DescribedUsers, amounts, chosen, guessed, people_of
from veilrec.datasets.reading.table import Kind, TextTable, read_table, sample
from veilrec.datasets.reading.text import clean
from veilrec.datasets.reading.times import times_of
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["csv"]

ROLES = ("user", "item", "rating", "time")
TEXTS = (".csv", ".tsv", ".txt", ".dat", ".data", ".inter")


@dataclass(frozen=True)
class Options:
    """Options for reading a log; None is guessed.

    Attributes:
        columns: Column names by role (user, item, rating, time); ``-`` for none.
        attribute: The attributes to take; empty takes every column that could be one.
        borders: Where to cut numbers into groups, by attribute: ``{"age": (35, 45)}``.
        separator, header, encoding: How the files are written.
        time_format: How dates are written, as in strptime.
        strict: Whether a loss that would be reported is an error.
        split_seed: Decides the order of events at the same time.
        continuous: Columns of numbers to take as they are, without classes.
        escape: The letter behind which a quote is no quote, in the log.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    attribute: Sequence[str] = ()
    borders: Mapping[str, Sequence[float]] = field(default_factory=dict)
    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None
    time_format: str | None = None
    strict: bool = False
    split_seed: int = 0
    continuous: Sequence[str] = ()
    escape: str | None = None

    @property
    def format(self) -> FileFormat:
        """How the log is written."""
        return FileFormat(self.separator, self.header, self.encoding, self.escape)


class Sources(NamedTuple):
    """The files of one dataset, and its name."""

    name: str
    log: Source
    people: Source | None = None
    titles: Source | None = None


@dataclass(frozen=True)
class Understood:
    """A log as understood, before it is read: its text, its layout, its roles and its first rows."""

    source: Source
    layout: Layout
    roles: Mapping[str, str]
    first: Sequence[Sequence[str]]


@bounded("data")
def csv(
    path: Path,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    attributes: Path | None = None,
    attribute: Sequence[str] = (),
    borders: Mapping[str, Sequence[Border]] | None = None,
    continuous: Sequence[str] = (),
    titles: Path | None = None,
    separator: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    time_format: str | None = None,
    escape: str | None = None,
    strict: bool = False,
    split_seed: Seed = 0,
) -> Interactions:
    r"""A log in a text file, plain, gzipped or alone in a zip.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "films.csv"
    ...     _ = path.write_text("user,film,age\nann,Alien,34\nbob,Alien,51\nbob,Brazil,51\n")
    ...     log = csv(path, user="user", item="film", attribute=["age"], borders={"age": [50]})
    >>> list(zip(log.user.tolist(), log.item.tolist())), log.item_ids
    ([(0, 0), (1, 0), (1, 1)], ['Alien', 'Brazil'])
    >>> log.attributes["age"], log.classes["age"]
    (tensor([0, 1]), ('under 50', '50 and over'))

    Args:
        path: One event a row.
        user, item, rating, time: Names or numbers of columns; ``-`` for none.
        attributes: A file with one row a user; without it, `attribute` names columns of the log itself.
        attribute, borders: Which attributes to take, and where to cut numbers into groups.
        continuous: Columns of numbers to take as they are, e.g. an age in years.
        titles: A file with one row an item.
        separator, header, encoding, time_format: How the files are written.
        escape: The letter behind which a quote is no quote: ``\\`` in what MySQL writes.
        strict: Turn everything that would be reported into an error.
        split_seed: Decides the order of events at the same time, and so what is held out.
    """
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    written = (separator, header, encoding, time_format)
    options = Options(columns, attribute, borders or {}, *written, strict, split_seed, continuous, escape)
    sources = file_sources(Path(path), attributes, titles)
    return from_reading(sources, understood(sources.log, options), options)


def file_sources(path: Path, attributes: Path | None = None, titles: Path | None = None) -> Sources:
    """A log, and the files that go with it."""
    people = None if attributes is None else read(Path(attributes))
    items = None if titles is None else read(Path(titles))
    return Sources(path.name.split(".")[0], log_source(path), people, items)


def log_source(path: Path) -> Source:
    """The log at `path`; of a zip, its only text file."""
    if not is_zip(path):
        return read(path)
    names = [name for name in Archive(path).names if name.lower().endswith(TEXTS)]
    if len(names) != 1:
        fix = f"name one of them, as in {path}/{names[0]}" if names else "unpack it, then name the log"
        raise BadInput(path, f"the archive has {len(names)} text files", fix)
    return Archive(path).read(names[0])


def understood(log: Source, options: Options) -> Understood:
    """The reading of a log: its text, layout, roles and first rows."""
    if log.data[:64].lstrip().startswith((b"{", b"[")):
        raise BadInput(log.where, "looks like JSON", "write it as CSV, one event a row", line=1)
    told = {role: options.columns.get(role) for role in ROLES}
    words = WORDS | {plain(name) for name in told.values() if name and name != "-" and not name.isdecimal()}
    source, layout = options.format.understand(log, words)
    first = sample(source, layout, 5)
    if not first:
        raise BadInput(source.where, "a header and no rows", "give a file with rows", line=1)
    return Understood(source, layout, roles(source.where, layout, first[0], told), first)


def from_reading(sources: Sources, reading: Understood, options: Options) -> Interactions:
    """A log as understood, with its users' attributes and its items' titles."""
    table = _read(reading, options)
    people = None
    if sources.people is not None:
        people = _people(sources.people, options)
    elif options.attribute or options.continuous:
        people = _inline_people(reading, options)
    titles = None if sources.titles is None else _titles(sources.titles, options)
    rating, time = (reading.roles.get(role) for role in ("rating", "time"))
    events = Log(
        table,
        reading.roles["user"],
        reading.roles["item"],
        None if rating is None else table.numbers[rating].astype(np.float32),
        None if time is None else times_of(table, time, options.time_format),
    )
    strict, split_seed = options.strict, options.split_seed
    return assemble(sources.name, events, people, titles, strict=strict, split_seed=split_seed)


def _read(reading: Understood, options: Options) -> TextTable:
    kinds: dict[str, Kind] = {reading.roles["user"]: "token", reading.roles["item"]: "token"}
    for role in ("rating", "time"):
        if (name := reading.roles.get(role)) is not None:
            value = "".join(reading.first[0][reading.layout.names.index(name) :][:1]).strip()
            dated = role == "time" and (options.time_format or (value and not is_number(value)))
            kinds[name] = "token" if dated else "number"
    return read_table(reading.source, reading.layout, kinds)


def _people(source: Source, options: Options) -> DescribedUsers:
    """The users of a file about users: its user column by name, else its first."""
    source, layout = understand(clean(source, options.encoding), words=WORDS)
    user = guess(layout, "user") or layout.names[0]
    wanted, borders, continuous = _asked(source.where, layout, options)
    others = wanted or [name for name in layout.names if name not in (user, *continuous)]
    table = read_table(source, layout, dict.fromkeys([user, *others, *continuous], "token"))
    sound_ids(table, user)
    values = {name: amounts(table, name) for name in continuous}
    if wanted:
        return people_of(table, user, chosen(table, wanted, borders), values=values)
    attributes, notes = guessed(table, others, borders)
    return people_of(table, user, attributes, notes, values)


def _inline_people(reading: Understood, options: Options) -> DescribedUsers:
    """Attributes that stand in the log itself, the same in every row of a user."""
    where, layout, user = reading.source.where, reading.layout, reading.roles["user"]
    wanted, borders, continuous = _asked(where, layout, options)
    table = read_table(reading.source, layout, dict.fromkeys([user, *wanted, *continuous], "token"))
    values = {name: amounts(table, name) for name in continuous}
    return people_of(table, user, chosen(table, wanted, borders), values=values)


def _asked(
    where: str, layout: Layout, options: Options
) -> tuple[list[str], dict[str, Sequence[float]], list[str]]:
    """The columns that were named: attributes, borders by column, and those to take as they are."""
    wanted, continuous = (
        [column(where, layout, name) for name in names] for names in (options.attribute, options.continuous)
    )
    borders = {column(where, layout, name): cuts for name, cuts in options.borders.items()}
    if both := {*wanted, *borders} & {*continuous}:
        what = f'"{min(both)}" shall be continuous and have classes as well'
        raise BadInput("continuous", what, "choose one of the two")
    return wanted, borders, continuous


def _titles(source: Source, options: Options) -> Titles:
    """The titles of a file about items: its item and title columns by name, else its first two."""
    source, layout = understand(clean(source, options.encoding), words=WORDS)
    item = guess(layout, "item") or layout.names[0]
    title = guess(layout, "title") or next(name for name in layout.names if name != item)
    return titles_of(read_table(source, layout, {item: "token", title: "token"}), item, title)
