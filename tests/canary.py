"""Canaries: patterns that only private data has, and a scanner that finds them in any bytes.

Every needle is long enough that no other data holds it by chance: one float64, two float32 or four float16
in a row, four item numbers in the order of time, eight letters of an id. A document is also read as hex, as
base64 and as decimal numbers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint64]
Owner = NDArray[np.int64]
Numbers = NDArray[np.float64]

WIDEST = 32  # bytes of a needle
URLSAFE = bytes.maketrans(b"-_", b"+/")
LATTICE = 1 << 17  # steps in a one: the finest that a noise of the tests has
LETTERS = 8  # of an id: so many in a row are found
HEX = re.compile(rb"[0-9a-fA-F]{16,}")
BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{11,}")
DIGEST = re.compile(rb"(?<![0-9a-f])(?=\d*[a-f])[0-9a-f]{64}(?![0-9a-f])")  # its digits are no numbers
NUMERAL = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,2}(?!\d))?")
LONG = re.compile(
    rb"-?\d[\d.]{4,}(?:[eE][-+]?\d{1,2}(?!\d))?"
)  # in bytes that are no text, short ones are noise
MIX = np.uint64(0x9E3779B97F4A7C15)
SIEVE = 1 << 22  # places in a table that sorts out words at once
CHANCE = 1e-6  # expected number of runs of decimals that agree with a canary by chance: fewer is a find


HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
FORMS = [  # how many numbers in a row are meant, how they were rounded, and as what they were stored
    (1, DOUBLE, DOUBLE),
    (2, SINGLE, SINGLE),
    (1, SINGLE, DOUBLE),
    *((4, rounded, stored) for rounded in (HALF, BRAIN) for stored in (rounded, SINGLE, DOUBLE)),
]


class Found(NamedTuple):
    """A canary where it should not be."""

    place: str
    form: str
    canary: str
    offset: int


class Needles(NamedTuple):
    """Patterns of one width, ascending, and a table that tells at once of most words that they are none."""

    words: Words
    owner: Owner
    likely: NDArray[np.bool_]


class Decimals(NamedTuple):
    """Private numbers, ascending; which place in the rows each has, and whose each place is."""

    value: Numbers
    place: NDArray[np.int64]
    owner: Owner


@dataclass
class Canaries:
    """A collection of patterns.

    Attributes:
        count: How many private values there are: numbers and ids.
    """

    count: int = 0
    names: list[str] = field(default_factory=list)
    _words: dict[int, list[tuple[Words, Owner]]] = field(default_factory=dict)
    _rows: list[tuple[Numbers, Owner]] = field(default_factory=list)  # for decimals: each row in order
    _sorted: dict[int, Needles] = field(default_factory=dict)
    _decimal: Decimals | None = None

    def copy(self) -> Canaries:
        """The same, to add to."""
        words = {width: list(planted) for width, planted in self._words.items()}
        return Canaries(self.count, list(self.names), words, list(self._rows))

    def texts(self, what: str, texts: Sequence[str]) -> None:
        """Ids, titles, names: any letters in a row, `LETTERS` of them or more, are found."""
        for text in texts:
            data = text.encode()
            assert len(data) >= LETTERS, text
            cut = [data[k : k + LETTERS] for k in range(len(data) - LETTERS + 1)]
            whole = np.frombuffer(b"".join(cut), np.uint8).reshape(len(cut), -1)
            self._plant(whole, np.full(len(cut), self._name(f"{what} {text}")))
        self.count += len(texts)

    def numbers(self, what: str, rows: Tensor, who: Sequence[int] | None = None) -> None:
        """Private floats, ``[people, values]``: what belongs to one person is one row; `who` numbers them."""
        rows = rows.detach().cpu().double()
        odd = ~plain(rows)  # zeros, ones, halves: everybody has them
        people = range(len(rows)) if who is None else who
        owner = torch.tensor([self._name(f"{what} of {k}") for k in people], dtype=torch.int64)
        for length, rounded, stored in FORMS:
            if rows.shape[1] >= length and len(rows):
                small = rows.to(rounded).abs() < torch.finfo(rounded).tiny  # nothing much is left of it
                few = length < 4 and plain(rows.to(rounded).double())  # what rounding has put on a lattice
                whole = (odd & ~small & ~torch.as_tensor(few)).unfold(1, length, 1).all(2)  # [people, runs]
                runs = rows.unfold(1, length, 1)[whole].to(rounded).to(stored)
                self._tensor(runs, owner[:, None].expand_as(whole)[whole].numpy())
        self._decimals(rows.numpy(), owner.numpy())
        self.count += int(odd.sum())

    def histories(self, what: str, rows: Sequence[Tensor]) -> None:
        """Item numbers in the order of time: four in a row that do not ascend, as no list of rows is."""
        for k, row in enumerate(rows):
            name = np.array([self._name(f"{what} of {k}")])
            self._decimals(row.double().numpy()[None], name)
            runs = row.unfold(0, 4, 1) if len(row) >= 4 else row.new_zeros(0, 4)
            runs = runs[(runs.diff(dim=1) < 0).any(1)]
            for kind in (torch.int16, torch.int32, torch.int64, HALF, SINGLE, DOUBLE):
                self._tensor(runs.to(kind), name.repeat(len(runs)))
            self.count += len(row)

    def moments(self, what: str, values: Tensor) -> None:
        """Whole numbers of 64 bits, each one unlike any other number."""
        assert int(values.min()) > 1 << 52
        name = np.array([self._name(what)])
        self._tensor(values[:, None], name.repeat(len(values)))
        self._decimals(values.double().numpy()[None], name)
        self.count += len(values)

    def find(self, data: bytes, place: str = "") -> list[Found]:
        """Every canary in some bytes: as it is, in hex, in base64, as decimal numbers."""
        found = [Found(place, form, *hit) for form, view in views(data) for hit in self._hits(view)]
        found += [Found(place, "decimal", *hit) for hit in self._printed(data)]
        return found

    def scan(self, documents: Mapping[str, bytes]) -> list[Found]:
        """The same for many documents, by name."""
        return [hit for place, data in documents.items() for hit in self.find(data, place)]

    def _name(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def _tensor(self, runs: Tensor, owner: Owner) -> None:
        """Runs of numbers ``[n, k]``, in both byte orders."""
        if len(runs):
            size = runs.element_size()
            raw = runs.contiguous().view(torch.uint8).numpy().reshape(len(runs), -1)
            turned = raw.reshape(len(runs), -1, size)[:, :, ::-1].reshape(len(runs), -1)
            self._plant(np.concatenate([raw, turned]), np.concatenate([owner, owner]))

    def _plant(self, cut: NDArray[np.uint8], owner: Owner) -> None:
        """Needles of one width, ``[n, bytes]``: 8, 16 or 32."""
        words = np.ascontiguousarray(cut).view(np.uint64)  # [n, width / 8]
        self._words.setdefault(cut.shape[1], []).append((mixed(list(words.T)), owner))

    def _decimals(self, rows: Numbers, owner: Owner) -> None:
        wider = np.pad(rows, ((0, 0), (0, 1)), constant_values=np.nan)  # no run goes on to the next person
        self._rows.append((wider.reshape(-1), owner.repeat(wider.shape[1])))

    def _hits(self, data: bytes) -> Iterator[tuple[str, int]]:
        every = all_words(data)
        for width in self._words:
            if len(data) < width:
                continue
            needles = self._needles(width)
            last = len(every) - width + 8
            seen = mixed([every[k : last + k] for k in range(0, width, 8)])
            likely = np.flatnonzero(needles.likely[sieve(seen)])
            place = np.searchsorted(needles.words, seen[likely]).clip(max=len(needles.words) - 1)
            same = needles.words[place] == seen[likely]
            for where, owner in zip(likely[same].tolist(), needles.owner[place[same]].tolist(), strict=True):
                yield self.names[owner], where

    def _needles(self, width: int) -> Needles:
        """All needles of one width, in order."""
        if len(self._words[width]) > 1 or width not in self._sorted:
            words, owner = joined(self._words[width])
            order = words.argsort()
            likely = np.zeros(SIEVE, dtype=bool)
            likely[sieve(words)] = True
            self._words[width] = [(words[order], owner[order])]
            self._sorted[width] = Needles(words[order], owner[order], likely)
        return self._sorted[width]

    def _printed(self, data: bytes) -> Iterator[tuple[str, int]]:
        """Runs of printed numbers that agree with a private row to the last digit printed."""
        bare = DIGEST.sub(lambda mark: b"." * len(mark[0]), data)
        marks = list((NUMERAL if is_text(data) else LONG).finditer(bare))
        printed = [numeral(mark[0].decode()) for mark in marks]
        if not marks or not self._rows:
            return
        value, give = (np.array(column) for column in zip(*printed, strict=True))
        known, order, whose = self._known()
        low, high = np.searchsorted(known, value - give), np.searchsorted(known, value + give, "right")
        near = np.maximum(0.1 * np.abs(value), give)
        around = np.searchsorted(known, value + near) - np.searchsorted(known, value - near)
        chance = (around + 1) / len(known) * np.minimum(1, give / near)  # that some private number agrees
        told = np.flatnonzero((chance < 0.05) & (high > low))
        which = np.repeat(told, (high - low)[told])
        inside = np.arange(len(which)) - np.repeat(
            (high - low)[told].cumsum() - (high - low)[told], (high - low)[told]
        )
        row = order[low[which] + inside]
        least = np.log10(CHANCE) - np.log10(len(known)) - np.log10(len(value))
        for number, place in runs_of(which, row, np.log10(chance), least):
            yield self.names[whose[place]], marks[number].start()

    def _known(self) -> Decimals:
        """All numbers that may be met in print, in order."""
        if self._decimal is None or len(self._rows) > 1:
            rows, whose = joined(self._rows)
            order = np.argsort(rows)  # NaN comes last
            self._rows = [(rows, whose)]
            self._decimal = Decimals(rows[order][: int((~np.isnan(rows)).sum())], order, whose)
        return self._decimal


def joined(pieces: Sequence[tuple[NDArray[Any], Owner]]) -> tuple[NDArray[Any], Owner]:
    """One column of values and one of owners."""
    return np.concatenate([values for values, _ in pieces]), np.concatenate([who for _, who in pieces])


def runs_of(
    which: NDArray[np.int64], row: NDArray[np.int64], weight: Numbers, least: float
) -> Iterator[tuple[int, int]]:
    """Where runs of numbers begin that agree with a private row, and that no chance explains.

    Args:
        which: Of each agreement, the printed number.
        row: Of each agreement, the place among private numbers.
        weight: Of each printed number; a run has the sum of its numbers.
        least: A run that weighs less, being so unlikely by chance, is found.
    """
    if not len(which):
        return
    width, most = len(weight) + 1, int(row.max())  # in a run, both go up by one: so does one number for both
    runs = np.sort((which - row + most) * width + which)
    starts = np.flatnonzero(np.diff(runs, prepend=runs[0] - 2) != 1)
    number = runs % width
    for start in starts[np.add.reduceat(weight[number], starts) < least].tolist():
        yield int(number[start]), int(number[start] - runs[start] // width + most)


def plain(values: Tensor) -> Tensor:
    """Which numbers anybody might have: those of few bits, as noise has them, and those that are none."""
    few = (values * LATTICE).round() / LATTICE == values
    return few | ~values.isfinite()


def mixed(words: list[Words]) -> Words:
    """One word for each run of words."""
    if len(words) == 1:
        return words[0]
    total = np.zeros_like(words[0])
    with np.errstate(over="ignore"):
        for word in words:
            total = total ^ word
            for shift in (32, 29):  # down before each product, or words with bits at the top alone collide
                total = (total ^ (total >> np.uint64(shift))) * MIX
            total ^= total >> np.uint64(32)
    return total


def sieve(words: Words) -> NDArray[np.uint64]:
    """Where a word stands in the table."""
    with np.errstate(over="ignore"):
        place: Words = (words * MIX) >> np.uint64(64 - SIEVE.bit_length() + 1)
    return place


def all_words(data: bytes) -> Words:
    """The 64-bit word at every offset."""
    count = max(0, len(data) - 7)
    words = np.empty(count, np.uint64)
    for k in range(min(8, count)):
        words[k::8] = np.frombuffer(data, np.uint64, (count - k + 7) // 8, k)
    return words


def views(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The bytes, and what they hold in hex and in base64, whatever comes before it."""
    yield "raw", data
    apart = b"\xff" * WIDEST  # no number begins or ends so; with zeros, those of few bits would
    whole = [mark[0][k:] for mark in HEX.finditer(data) for k in range(2)]
    yield "hex", apart.join(bytes.fromhex(text[: len(text) // 2 * 2].decode()) for text in whole)
    whole = [mark[0][k:].translate(URLSAFE) for mark in BASE64.finditer(data) for k in range(4)]
    yield "base64", apart.join(base64.b64decode(text + b"A" * (-len(text) % 4)) for text in whole)


def numeral(text: str) -> tuple[float, float]:
    """A printed number, and how far from it what was printed may lie."""
    mantissa, _, exponent = text.lower().partition("e")
    places = len(mantissa.partition(".")[2])
    value = float(text)
    step = 10.0 ** (int(exponent or 0) - places)
    return value, 0.5001 * step + 1e-15 * abs(value)


def is_text(data: bytes) -> bool:
    """Whether bytes are text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
