"""TOML for recipes: written with a comment beside each value, and read so that errors can name a line."""

from __future__ import annotations

import math
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from veilrec.errors import BadInput

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Table

__all__ = ["DEEPEST", "Document", "read", "value_of", "write"]

Filled = TypeVar("Filled", "TOMLDocument", "Table")

DEEPEST = 20  # tables and lists in each other: a recipe has four
LARGEST = 1 << 20  # bytes; a recipe has a few hundred
HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]")
KEY = re.compile(r"""\s*((?:[A-Za-z0-9_.-]|"[^"]*"|'[^']*')+)\s*=""")


class Document(NamedTuple):
    """A TOML file: its values, and the line of each key by its dotted name."""

    path: Path
    values: dict[str, Any]
    lines: dict[str, int]


def read(path: Path) -> Document:
    """The TOML file at `path`.

    Raises:
        BadInput: With the line, where it cannot be read as TOML.
    """
    text = _text(path)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, line = _complaint(str(error), text)
        raise BadInput(path, f"not TOML: {what}", "correct that line", line=line) from error
    except RecursionError:
        values = None
    except ValueError as error:  # Python reads no whole number of more digits than that
        raise BadInput(path, "a number of thousands of digits", "correct it") from error
    if values is None or _is_deep(values):
        raise BadInput(path, "not TOML: nested too deeply", "flatten it")
    return Document(path, values, dict(_lines(text)))


def value_of(text: str) -> Any:
    """A value as TOML writes it; other text stands for itself, so that quotes may be left out.

    >>> value_of("0.5"), value_of("[1, 2]"), value_of("fed-mf")
    (0.5, [1, 2], 'fed-mf')
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
        return text
    return found["value"] if len(found) == 1 and not _is_deep(found) else text


def write(values: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """TOML that reads back as `values`; `comments`, by dotted name, go to the ends of lines.

    >>> print(write({"model": {"name": "FedMF", "dim": 8}}, {"model.dim": "default"}), end="")
    [model]
    name = "FedMF"
    dim = 8 # default
    """
    import tomlkit  # late: a command that writes no recipe does without
    from tomlkit.items import AoT

    _check("", values)
    comments, text = comments or {}, tomlkit.document()
    _fill(text, "", {name: value for name, value in values.items() if not _is_table(value)}, comments)
    for name, value in values.items():
        if isinstance(value, Mapping):
            text.add(name, _fill(tomlkit.table(), f"{name}.", value, comments))
        elif _is_table(value):
            tables = [_fill(tomlkit.table(), f"{name}.{k}.", v, comments) for k, v in enumerate(value)]
            text.add(name, AoT(tables))
    return tomlkit.dumps(text)


def _text(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise BadInput(path, "is not a plain file", "copy what it gives into a file")
        if found.st_size > LARGEST:
            raise BadInput(path, "too large for a recipe", "name a TOML file")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise BadInput(path, "no such file", "check the path") from error
    except IsADirectoryError as error:
        raise BadInput(path, "a folder, not a file", "name the recipe in it") from error
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}", "check the path") from error
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(path, "not UTF-8", "save it in that encoding", line=line) from error


def _complaint(message: str, text: str) -> tuple[str, int]:
    """The parser's complaint without its place, and the line."""
    found = re.search(r"\s*\(at (?:line (\d+)|end of document).*\)$", message)
    if found is None:
        return message, 1
    what = message[: found.start()]
    if "overwrite" in what:
        what = "the same key twice"
    return what, int(found[1]) if found[1] else text.count("\n") + 1


def _is_deep(values: Any) -> bool:
    """Whether tables and lists lie in each other deeper than anybody writes them."""
    level: list[Any] = [values]
    for _ in range(DEEPEST):
        inner = [one.values() if isinstance(one, Mapping) else one for one in level]
        level = [entry for some in inner for entry in some if isinstance(entry, Mapping | list)]
    return bool(level)


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Each table and key by its dotted name, with its line; entries of an array of tables are numbered."""
    table, counts = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            table = header[2].replace('"', "")
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                yield table, number
                table = f"{table}.{counts[table]}"
            yield table, number
        elif key := KEY.match(line):
            name = re.sub("[\"']", "", key[1])
            yield (f"{table}.{name}" if table else name), number


def _is_table(value: Any) -> bool:
    """True if a value of the top level is written under a header of its own."""
    listed = isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value)
    return isinstance(value, Mapping) or bool(listed)


def _fill(table: Filled, prefix: str, values: Mapping[str, Any], comments: Mapping[str, str]) -> Filled:
    """Put each value into a table, with its comment; tables among them stay in their line."""
    from tomlkit import inline_table
    from tomlkit.items import Item

    for name, value in values.items():
        item = inline_table().add(name, value).value.item(name)
        assert isinstance(item, Item)
        if comment := comments.get(f"{prefix}{name}"):
            item.comment(comment)
        table.add(name, item)
    return table


def _check(where: str, value: Any) -> None:
    """Refuse values that TOML or a recipe cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(where, f"{value} is no amount", "give a finite number")
    if not isinstance(value, bool | int | float | str | list | tuple | Mapping):
        what = f"a {type(value).__name__} cannot be written as TOML"
        raise BadInput(where, what, "use text, numbers, lists or tables")
    if isinstance(value, list | tuple | Mapping):
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check(f"{where}.{name}" if where else str(name), inner)
