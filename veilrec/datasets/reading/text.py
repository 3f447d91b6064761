"""From bytes to clean text: one encoding, one kind of line end, no bytes that do not belong there."""

from __future__ import annotations

from veilrec.datasets.reading.archives import Source, kind_of
from veilrec.errors import BadInput

__all__: list[str] = []

LONGEST = 4 << 20  # bytes of a line: a vector of some 300,000 numbers
MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def clean(source: Source, encoding: str | None = None) -> Source:
    """The same text in UTF-8 with plain line ends; `encoding` only where a format or a person says so.

    Raises:
        BadInput: With the line of the first byte that cannot be text.
    """
    if kind := kind_of(source.data):
        raise BadInput(
            source.where, f"a {kind} archive where text is expected", "unpack it, then name the file"
        )
    data = _as_utf8(source) if encoding is None else _decoded(source, encoding)
    if (place := data.find(b"\0")) >= 0:
        line = line_at(data, place)
        raise BadInput(source.where, "a NUL byte: not text, or UTF-16", "save it as UTF-8 text", line=line)
    data = _plain_ends(source.where, data)
    if not data.strip():
        raise BadInput(source.where, "the file is empty", "give a file with rows")
    _check_lines(source.where, data)
    return Source(source.where, data)


def _check_lines(where: str, data: bytes) -> None:
    """Refuse a line that is too long to be held as fields."""
    begin = 0
    while len(data) - begin > LONGEST:
        end = data.rfind(b"\n", begin, begin + LONGEST + 1)
        if end < 0:
            what = f"a line of more than {LONGEST:,} bytes"
            raise BadInput(where, what, "check its line ends", line=line_at(data, begin))
        begin = end + 1


def line_at(data: bytes, place: int) -> int:
    """The number of the line that holds the byte at `place`, from 1."""
    return data.count(b"\n", 0, place) + 1


def _as_utf8(source: Source) -> bytes:
    data = source.data.removeprefix(b"\xef\xbb\xbf")
    for mark, name in MARKS.items():
        if data.startswith(mark):
            fix = f"save it as UTF-8, or pass --encoding {name.lower()}"
            raise BadInput(source.where, f"the file is {name}", fix, line=1)
    if not data.isascii():
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"byte 0x{data[error.start]:02x} is not UTF-8"
            fix = "save it as UTF-8, or pass --encoding latin-1"
            raise BadInput(source.where, what, fix, line=line_at(data, error.start)) from error
    return data


def _decoded(source: Source, encoding: str) -> bytes:
    marked = source.data.startswith(b"\xef\xbb\xbf")  # the file itself says that it is UTF-8
    try:
        return source.data.decode("utf-8" if marked else encoding).removeprefix("\ufeff").encode("utf-8")
    except LookupError as error:
        raise BadInput("--encoding", f'no encoding is called "{encoding}"', "try utf-8 or latin-1") from error
    except UnicodeDecodeError as error:
        line = line_at(source.data, error.start)
        raise BadInput(
            source.where, f"not {encoding}: {error.reason}", "check --encoding", line=line
        ) from error
    except UnicodeError as error:
        raise BadInput(source.where, f"not {encoding}: {error}", "check --encoding") from error


def _plain_ends(where: str, data: bytes) -> bytes:
    if b"\r" not in data:
        return data
    data = data.replace(b"\r\n", b"\n")
    if b"\n" not in data:  # the line ends of old Macs
        return data.replace(b"\r", b"\n")
    if (place := data.find(b"\r")) >= 0:
        line = line_at(data, place)
        raise BadInput(where, "a carriage return inside a line", "use one kind of line end", line=line)
    return data
