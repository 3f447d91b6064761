"""A message is as long as its schema says, comes back as it was sent, and anything else is refused."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows
from veilrec.base.tensors import NAMES
from veilrec.errors import BadInput
from veilrec.wire.codec import Schema, Spec, check, decode, encode, one, size

SCHEMA: Schema = {
    "examples": Spec((), torch.int32),
    "item": Spec((3,), torch.float32, table=50),
    "bias": Spec((), torch.float32, table=50),
    "mlp1.weight": Spec((4, 2)),
    "mask": Spec((5,), torch.bool),
    "wide": Spec((2,), torch.float64),
    "steps": Spec((1,), torch.int64),
}


def message(rows: int = 3) -> Message:
    keys = Keys.seed(rows)
    row = keys.order(50)[:rows].sort().values
    return {
        "examples": torch.tensor(7, dtype=torch.int32),
        "item": Rows(row, keys.normal(rows, 3)),
        "bias": Rows(row, keys.normal(rows)),
        "mlp1.weight": keys.normal(4, 2),
        "mask": torch.tensor([True, False, True, True, False]),
        "wide": keys.normal(2, dtype=torch.float64),
        "steps": torch.tensor([2**40]),
    }


def flat(rows: int = 3) -> dict[str, torch.Tensor]:
    """The tensors inside a message's bytes."""
    found: dict[str, torch.Tensor] = {}
    for name, value in message(rows).items():
        if isinstance(value, Rows):
            found |= {name: value.value, name + "#rows": value.row.to(torch.int32)}
        else:
            found[name] = value
    return found


def same(a: Message, b: Message) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(x.row, y.row) and torch.equal(x.value, y.value)
        if isinstance(x := a[n], Rows) and isinstance(y := b[n], Rows)
        else torch.equal(a[n], b[n])  # type: ignore[arg-type]
        for n in a
    )


@pytest.mark.parametrize("rows", [0, 1, 3, 49, 50])
def test_there_and_back(rows: int) -> None:
    data = encode(message(rows))
    assert same(decode(data, SCHEMA), message(rows))
    assert len(data) == size(SCHEMA, {"item": rows, "bias": rows})
    assert encode(decode(data, SCHEMA)) == data


@given(
    st.dictionaries(
        st.text(st.sampled_from("abcxyz_1."), min_size=1, max_size=9),
        st.tuples(
            st.lists(st.integers(0, 4), max_size=3),
            st.sampled_from(list(NAMES)),
            st.one_of(st.none(), st.integers(0, 20)),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_size_is_the_length_of_the_bytes(specs: dict[str, tuple[list[int], torch.dtype, int | None]]) -> None:
    schema, rows, sent = {}, {}, {}
    for name, (shape, dtype, count) in specs.items():
        schema[name] = Spec(tuple(shape), dtype, None if count is None else 1000)
        if count is None:
            sent[name] = torch.zeros(shape, dtype=dtype)
        else:
            rows[name] = count
            sent[name] = Rows(torch.arange(count), torch.zeros(count, *shape, dtype=dtype))  # type: ignore[assignment]
    data = encode(sent)  # type: ignore[arg-type]
    assert len(data) == size(schema, rows)
    assert same(decode(data, schema), sent)  # type: ignore[arg-type]


def test_padding_does_not_travel() -> None:
    padded = message()
    item = padded["item"]
    assert isinstance(item, Rows)
    padded["item"] = Rows(
        torch.cat([item.row, torch.tensor([-1, -1])]), torch.cat([item.value, torch.full((2, 3), 9.0)])
    )
    check(padded, SCHEMA)
    assert encode(padded) == encode(message())


def test_one_client_of_a_cohort() -> None:
    cohort: Message = {
        "item": Rows(torch.tensor([[1, 4], [2, -1]]), torch.ones(2, 2, 3)),
        "w": torch.arange(2.0),
    }
    alone = one(cohort, 1)
    item = alone["item"]
    assert isinstance(item, Rows)
    assert item.row.tolist() == [2, -1]
    assert alone["w"] == torch.tensor(1.0)
    check(cohort, {"item": Spec((3,), table=9), "w": Spec(())}, lead=(2,))


def changed(**tensors: torch.Tensor | None) -> bytes:
    """A message's bytes with some tensors replaced, added or left out."""
    new = {name.replace("__", "#"): value for name, value in tensors.items()}
    return bytes(save({name: v for name, v in {**flat(), **new}.items() if v is not None}))


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ROW = torch.tensor([3, 5, 9], dtype=torch.int32)
VALID = encode(message())
HUGE = {"item": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 0]}}
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "short": b"\x01\x02",
    "text": b"hello, server, this is not a message at all",
    "zip": b"PK\x03\x04" + bytes(100),
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94",
    "header too long": raw({}, length=2**63 - 1),
    "header length lies": raw({}, length=10**6),
    "header is a list": raw([]),
    "header is not JSON": raw(b"{{{{"),
    "header is not UTF-8": raw(b'{"\xff\xfe": 1}'),
    "deep header": raw(b"[" * 10_000),
    "empty message": raw({}),
    "huge shape": raw(HUGE),
    "unknown type": raw({"item": {"dtype": "OBJ", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
    "small type": raw({"item": {"dtype": "F8_E5M2", "shape": [4], "data_offsets": [0, 4]}}, bytes(4)),
    "four-bit type": raw({"item": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}, bytes(4)),
    "nothing, immensely wide": raw({"item": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}),
    "overlapping": raw(
        {n: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for n in ("item", "bias")}, bytes(4)
    ),
    "beyond the end": raw({"item": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, bytes(4)),
    "negative offsets": raw({"item": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, bytes(4)),
    "bytes behind": VALID + b"more",
    "missing part": changed(mask=None),
    "missing rows": changed(item__rows=None),
    "missing values": changed(item=None),
    "undeclared part": changed(attribute=torch.ones(1)),
    "undeclared rows": changed(mask__rows=ROW),
    "wrong shape": changed(**{"mlp1.weight": torch.zeros(2, 4)}),
    "wrong rank": changed(**{"mlp1.weight": torch.zeros(8)}),
    "wrong width": changed(item=torch.zeros(3, 4)),
    "fewer values than rows": changed(item=torch.zeros(2, 3)),
    "more values than rows": changed(item=torch.zeros(4, 3)),
    "wrong type": changed(wide=torch.zeros(2)),
    "half precision": changed(item=torch.zeros(3, 3, dtype=torch.float16)),
    "integers for weights": changed(item=torch.zeros(3, 3, dtype=torch.int32)),
    "not a number": changed(item=torch.full((3, 3), float("nan"))),
    "infinite": changed(wide=torch.tensor([1.0, float("inf")], dtype=torch.float64)),
    "row twice": changed(item__rows=torch.tensor([3, 3, 9], dtype=torch.int32)),
    "rows not ascending": changed(item__rows=torch.tensor([5, 3, 9], dtype=torch.int32)),
    "row beyond the table": changed(item__rows=torch.tensor([3, 5, 50], dtype=torch.int32)),
    "negative row": changed(item__rows=torch.tensor([-7, 5, 9], dtype=torch.int32)),
    "padding sent": changed(item__rows=torch.tensor([3, 5, -1], dtype=torch.int32)),
    "row twice around padding": changed(item__rows=torch.tensor([3, -1, 3], dtype=torch.int32)),
    "wide rows": changed(item__rows=ROW.long()),
    "rows as fractions": changed(item__rows=ROW.float() + 0.5),
    "rows as truth values": changed(item__rows=torch.tensor([False, True, True])),
    "rows in a square": changed(item__rows=ROW[:, None], item=torch.zeros(3, 1, 3)),
    "rows in a square, of scalars": changed(
        bias__rows=torch.zeros(1, 1, dtype=torch.int32), bias=torch.zeros(1, 1)
    ),
    "a single row number": changed(item__rows=torch.tensor(3, dtype=torch.int32), item=torch.zeros(3)),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_broken_messages_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(BadInput) as error:
        decode(data, SCHEMA, sender="user 9")
    assert str(error.value).startswith("user 9: ")
    assert "\n" not in str(error.value)
    assert ";" in str(error.value)


@pytest.mark.parametrize("sixteenth", range(16))
def test_truncated_messages_are_refused(sixteenth: int) -> None:
    with pytest.raises(BadInput):
        decode(VALID[: len(VALID) * sixteenth // 16], SCHEMA)


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        decode(data, SCHEMA)


@settings(max_examples=500)
@given(place=st.integers(0, len(VALID) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_stays_within_the_schema(place: int, byte: int) -> None:
    data = VALID[:place] + bytes([byte]) + VALID[place + 1 :]
    try:
        found = decode(data, SCHEMA)
    except BadInput:
        return
    check(found, SCHEMA)
    assert len(encode(found)) == len(VALID)


def test_a_cohort_is_checked_like_one() -> None:
    schema: Schema = {"item": Spec((2,), table=9), "w": Spec((3,))}
    good: Message = {
        "item": Rows(torch.tensor([[1, 4], [2, -1]]), torch.zeros(2, 2, 2)),
        "w": torch.zeros(2, 3),
    }
    check(good, schema, lead=(2,))
    bad: list[Message] = [
        {**good, "extra": torch.zeros(2)},
        {"w": good["w"]},
        {**good, "w": torch.zeros(3, 3)},
        {**good, "w": torch.zeros(2, 3).double()},
        {**good, "w": torch.full((2, 3), float("nan"))},
        {**good, "item": torch.zeros(2, 2, 2)},
        {**good, "item": Rows(torch.tensor([[4, 1], [2, -1]]), torch.zeros(2, 2, 2))},
        {**good, "item": Rows(torch.tensor([[1, 9], [2, -1]]), torch.zeros(2, 2, 2))},
        {**good, "item": Rows(torch.tensor([[-1, 4], [2, -1]]), torch.zeros(2, 2, 2))},
    ]
    for broken in bad:
        with pytest.raises(BadInput):
            check(broken, schema, lead=(2,))
