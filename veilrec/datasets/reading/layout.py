"""The layout of a text in columns: its separator, its header, its quotes; guessed, or as told."""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.text import clean
from veilrec.errors import BadInput

__all__: list[str] = []

SEPARATORS = ("\t", "::", ",", ";", "|", " ")
SPOKEN = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
UNIT = "\x1f"  # stands for a separator of several characters, since the parsers know only single ones
SAMPLE, SAMPLE_BYTES = 50, 1 << 18
LONGEST = 4 << 20  # letters of a row, whose fields may have line ends in quotes
TYPES = ("token", "float", "token_seq", "float_seq")


@dataclass(frozen=True)
class Layout:
    """The columns of a text.

    Attributes:
        separator: The single character between fields.
        shown: The separator as written in the file.
        names: One name per column; ``1``, ``2``, … where there is no header.
        header: Whether the first line gives the names.
        quoted: Whether a field may stand in double quotes.
        escape: The letter behind which a quote is no quote, if there is one.
    """

    separator: str
    shown: str
    names: tuple[str, ...]
    header: bool
    quoted: bool
    escape: str | None = None

    @property
    def spaced(self) -> bool:
        """Whether blanks after a separator mean nothing."""
        return self.separator in ",;|"


@dataclass(frozen=True)
class FileFormat:
    """How a text file is written, as far as somebody said so; None is guessed.

    Attributes:
        separator: Between fields.
        header: Whether the first line gives the names.
        encoding: Of its letters.
        escape: The letter behind which a quote is no quote: ``\\`` in what MySQL and R write.
        names: Of the columns of a file that has no header.
    """

    separator: str | None = None
    header: bool | None = None
    encoding: str | None = None
    escape: str | None = None
    names: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        """Whether anything was said."""
        return self != FileFormat()

    def understand(self, source: Source, words: Collection[str] = ()) -> tuple[Source, Layout]:
        """The layout of a file's bytes, and its clean text (see `understand`)."""
        text, header = clean(source, self.encoding), False if self.names else self.header
        cut, layout = understand(
            text, separator=self.separator, header=header, words=words, escape=self.escape
        )
        return cut, replace(layout, names=self._named(source.where, layout)) if self.names else layout

    def _named(self, where: str, layout: Layout) -> tuple[str, ...]:
        """The names that somebody gave, one for each column."""
        if self.header:
            raise BadInput("--columns", "contradicts --header", "leave one out: a header names the columns")
        if len(self.names) != len(layout.names):
            what = f"{len(self.names)} names for the {len(layout.names)} columns of {where}"
            raise BadInput("--columns", what, "name each, as in id,age,gender")
        return _names("--columns", self.names)


def understand(
    source: Source,
    *,
    separator: str | None = None,
    header: bool | None = None,
    words: Collection[str] = (),
    quoted: bool | None = None,
    escape: str | None = None,
) -> tuple[Source, Layout]:
    """The layout of a clean text, and the text with single characters between its fields.

    Args:
        source: A text from `clean`.
        separator: As told; None to guess.
        header: Whether the first line gives the names; None to guess.
        words: Names of columns (`plain`) by which a header is known.
        quoted: Whether double quotes mean anything; None to guess.
        escape: The letter behind which a quote is no quote.
    """
    if escape is not None and (len(escape) != 1 or escape.isalnum() or escape in '"\r\n\0 '):
        raise BadInput("--escape", f"{escape!r} cannot escape a quote", "give one letter, as in '\\'")
    shown = SPOKEN.get(separator or "", separator) or _guess_separator(source)
    if shown.isalnum() or set(shown) & set('"\r\n\0'):
        raise BadInput("--sep", f"{shown!r} cannot separate fields", "use a comma, a tab or the like")
    if several := len(shown.encode()) > 1:
        if UNIT.encode() in source.data:
            raise BadInput(
                source.where, f'control characters in a file separated by "{shown}"', "remove them"
            )
        source = Source(source.where, source.data.replace(shown.encode(), UNIT.encode()))
    single = UNIT if several else shown
    if quoted is None:
        quoted = single in ",;" or source.data.startswith(b'"')
    layout = Layout(single, shown, (), False, quoted, escape)
    first, later = ([fields for _, fields in itertools.islice(rows(source, layout), 2)] + [[], []])[:2]
    if len(first) < 2:
        fix = f'the separator may be "{_guess_separator(source)}"' if separator else "name it with --sep"
        raise BadInput(source.where, f'one column only, with separator "{shown}"', fix, line=1)
    if header is None:
        header = _is_header(first, later, words)
    names = _names(source.where, first) if header else tuple(str(n + 1) for n in range(len(first)))
    return source, replace(layout, names=names, header=header)


def rows(source: Source, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """The line number and the fields of every row that is not blank; the header is not a row.

    Raises:
        BadInput: With the line of quotes that do not close, or of a row with too many or too few fields.
    """
    stream = io.TextIOWrapper(io.BytesIO(source.data), encoding="utf-8", newline="")
    reader = csv.reader(
        lines := _Lines(stream),
        delimiter=layout.separator,
        quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
        skipinitialspace=layout.spaced,
        escapechar=layout.escape,
        strict=True,
    )
    width, skip, line = len(layout.names), layout.header, 1
    try:
        for fields in reader:
            if len(fields) > 1 or "".join(fields).strip():
                if width and len(fields) != width:
                    raise _ragged(source, layout, len(fields), line)
                if not skip:
                    yield line, fields
                skip = False
            line, lines.held = reader.line_num + 1, 0
    except csv.Error as error:
        fix = "check its quotes and line ends"
        if layout.quoted and layout.escape is None and b'\\"' in source.data:
            fix = "if \\\" in it stands for a quote, pass --escape '\\'"
        raise BadInput(source.where, f"cannot be cut into fields: {error}", fix, line=line) from error


class _Lines:
    """The lines of a text, of which those of one row are held at once.

    Attributes:
        held: Letters of the row at hand, so far.
    """

    def __init__(self, stream: Iterable[str]) -> None:
        self.stream, self.held = iter(stream), 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.stream)
        self.held += len(line)
        if self.held > LONGEST:
            raise csv.Error(f"a row of more than {LONGEST:,} letters, over several lines")
        return line


def _ragged(source: Source, layout: Layout, found: int, line: int) -> BadInput:
    first = "the header" if layout.header else "the first row"
    what = f"{found} fields where {first} has {len(layout.names)}"
    return BadInput(source.where, what, "correct the line, or its quotes", line=line)


def plain(name: str) -> str:
    """A name without case and punctuation: ``User_ID`` and ``user id`` are the same column."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def is_number(field: str) -> bool:
    """Whether a field reads as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _guess_separator(source: Source) -> str:
    """The separator that cuts most of the first lines into the same number of fields."""
    head = source.data[:SAMPLE_BYTES]
    if len(head) < len(source.data):
        head = head.rpartition(b"\n")[0] or head  # the last line is cut off
    lines = [line for line in head.decode("utf-8", errors="ignore").split("\n")[:SAMPLE] if line.strip()]
    share = {separator: _agreement(lines, separator) for separator in SEPARATORS}
    best = max(SEPARATORS, key=lambda separator: share[separator])
    if not share[best]:
        raise BadInput(source.where, "no separator found: one column only", "name it with --sep", line=1)
    return best


def _agreement(lines: Sequence[str], separator: str) -> float:
    """The share of lines with the most common number of fields, 0 where that number is one."""
    if separator in (",", ";"):
        try:
            cut = Counter(len(fields) for fields in csv.reader(lines, delimiter=separator))
        except csv.Error:
            return 0.0
    else:
        cut = Counter(line.count(separator) + 1 for line in lines)
    count, times = cut.most_common(1)[0] if cut else (0, 0)
    return times / sum(cut.values()) if count > 1 else 0.0


def _is_header(first: Sequence[str], second: Sequence[str], words: Collection[str]) -> bool:
    if any(plain(name.split(":")[0]) in words for name in first):
        return True
    if any(is_number(name) for name in first):
        return False
    return any(is_number(field) for field in second)


def _names(where: str, header: Sequence[str]) -> tuple[str, ...]:
    """The names in a header, without the types of atomic files (``age:float``)."""
    names = [name.strip() for name in header]
    if all(name.rpartition(":")[2] in TYPES for name in names):
        names = [name.rpartition(":")[0] for name in names]
    names = [name or str(place + 1) for place, name in enumerate(names)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise BadInput(where, f'two columns are called "{twice[0]}"', "rename one of them", line=1)
    return tuple(names)
