"""Tensors on disk: safetensors files, written and read one tensor at a time."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from veilrec.base.files import BLOCK, Digest, Sink, atomic, reading
from veilrec.base.params import Params, under
from veilrec.errors import Corrupted

__all__ = [
    "DTYPES",
    "NAMES",
    "Blocks",
    "Column",
    "Lazy",
    "Reader",
    "beneath",
    "hashed",
    "header",
    "put_tensors",
    "raw",
    "read",
    "rows_of",
    "write",
    "write_columns",
]

Entry = tuple[torch.dtype, tuple[int, ...]]  # what a header says of a tensor

NAMES = {  # in the order in which the package safetensors lays out its tensors
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}  # the reverse, for those who keep columns


class Column(NamedTuple):
    """A tensor whose bytes lie in a file of their own."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    path: Path


class Blocks(NamedTuple):
    """A tensor too large to hold as a whole: its rows are made some at a time, as they are written."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    rows: Callable[[], Iterable[Tensor]]


def write(path: Path, tensors: Mapping[str, Tensor | Blocks], *, secret: bool = False) -> Digest:
    """A safetensors file; no second copy of the tensors is made on the way."""
    with atomic(path, secret=secret) as sink:
        put_tensors(sink, tensors)
    return sink.digest()


def put_tensors(
    sink: Sink, tensors: Mapping[str, Tensor | Blocks], notes: Mapping[str, str] | None = None
) -> None:
    """Write tensors as the bytes of a safetensors file; `notes` go into its header."""
    for name in _head(sink, {name: (t.dtype, tuple(t.shape)) for name, t in tensors.items()}, notes):
        tensor = tensors[name]
        for block in tensor.rows() if isinstance(tensor, Blocks) else (tensor,):
            sink.write(raw(block))


def write_columns(
    path: Path, columns: Mapping[str, Column], *, secret: bool = False, notes: Mapping[str, str] | None = None
) -> Digest:
    """A safetensors file put together from the files of its columns; `notes` go into its header."""
    with atomic(path, secret=secret) as sink:
        for name in _head(sink, {name: (c.dtype, c.shape) for name, c in columns.items()}, notes):
            with reading(columns[name].path) as file:
                while block := file.read(BLOCK):
                    sink.write(block)
    return sink.digest()


class Reader:
    """A safetensors file of which one tensor at a time is read, or only some of its rows.

    Tensors are copies, so that they are aligned as torch aligns its own: sums may depend on that.

    Attributes:
        names: Names of the tensors, in the order in which they were given to `write`.
        notes: Other entries of its header.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reading():
            self._file = cast("Any", safe_open(path, framework="pt"))
            self.notes: dict[str, str] = dict(self._file.metadata() or {})
            order = json.loads(self.notes.pop("order", "[]"))
            place = {name: k for k, name in enumerate(order)}
            self.names: list[str] = sorted(self._file.keys(), key=lambda name: place.get(name, len(order)))

    def get(self, name: str, start: int | None = None, stop: int | None = None) -> Tensor:
        """One tensor, or its rows `start` to `stop`."""
        with self._reading():
            if start is None:
                return self._file.get_tensor(name).clone()  # type: ignore[no-any-return]
            return self._file.get_slice(name)[start:stop].clone()  # type: ignore[no-any-return]

    def shape(self, name: str) -> list[int]:
        """The shape of a tensor, which is not read."""
        with self._reading():
            return list(self._file.get_slice(name).get_shape())

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as cause:
            raise Corrupted(f"{self.path}: cannot be read ({cause}); restore the file") from cause


class Lazy(Mapping[str, Tensor]):
    """Tensors of a file whose names begin with a prefix, each read when it is asked for.

    The file is opened anew for each of them: of a file that stays open, what was read counts as memory.
    """

    def __init__(self, path: Path, prefix: str = "", names: Iterable[str] | None = None) -> None:
        self.path, self.prefix = path, prefix
        every = Reader(path).names if names is None else names
        self._names = [name.removeprefix(prefix) for name in every if name.startswith(prefix)]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        return Reader(self.path).get(self.prefix + name)

    def __contains__(self, name: object) -> bool:  # which would read it otherwise
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Some rows of a tensor."""
        return Reader(self.path).get(self.prefix + name, start, stop)


def rows_of(tensors: Mapping[str, Tensor], name: str, start: int, stop: int) -> Tensor:
    """Some rows of a tensor, of which no more is read where it is `Lazy`."""
    return tensors.rows(name, start, stop) if isinstance(tensors, Lazy) else tensors[name][start:stop]


def beneath(tensors: Mapping[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
    """The tensors whose names begin with a prefix, without it; those that are `Lazy` stay so."""
    if isinstance(tensors, Lazy):
        names = [tensors.prefix + name for name in tensors]
        return Lazy(tensors.path, tensors.prefix + prefix, names)
    return under(tensors, prefix)


def read(path: Path) -> Params:
    """All tensors of a file.

    Raises:
        Corrupted: Where it is not such a file.
    """
    file = Reader(path)
    return {name: file.get(name) for name in file.names}


def raw(tensor: Tensor) -> memoryview:
    """The bytes of a tensor."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def hashed(tensors: Mapping[str, Tensor]) -> bytes:
    """SHA-256 of some tensors: their names, types, shapes and values, in whatever order they come.

    >>> hashed({"a": torch.ones(2)}) == hashed({"a": torch.ones(2, 1)})
    False
    """
    whole = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        entry = json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode()
        whole.update(len(entry).to_bytes(8, "little") + entry)
        whole.update(raw(tensor))
    return whole.digest()


def header(entries: Iterable[tuple[str, Entry]], notes: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    """The header of tensors that lie in this order, and the number of their bytes together."""
    head: dict[str, object] = {} if notes is None else {"__metadata__": dict(notes)}
    end = 0
    for name, (dtype, shape) in entries:
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        head[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, end


def _head(sink: Sink, entries: Mapping[str, Entry], notes: Mapping[str, str] | None = None) -> list[str]:
    """Write the header. Returns the order of the tensors: widest first, so that all are aligned."""
    order = sorted(entries, key=lambda name: (-entries[name][0].itemsize, name))
    notes = {**(notes or {}), "order": json.dumps(list(entries))}
    sink.write(header([(name, entries[name]) for name in order], notes)[0])
    return order
