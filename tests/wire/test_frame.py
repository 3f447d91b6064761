"""A message is judged by its header and its length, before any value of it is read."""

from __future__ import annotations

import json
import struct
import tracemalloc
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import save

from veilrec.base.params import Rows
from veilrec.base.tensors import header
from veilrec.errors import BadInput
from veilrec.wire import codec
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.frame import OPEN, framed, limits

SCHEMA: Schema = {"item": Spec((3,), table=50), "bias": Spec((4,))}
NOTES = {"run": 20}


def raw(head: Any, body: bytes = b"") -> bytes:
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_a_frame_says_what_is_there() -> None:
    data = save({"a": torch.zeros(2, 3), "b": torch.tensor(1)}, {"run": "x"})
    frame = framed(bytes(data))
    assert frame.entries == {"a": (torch.float32, (2, 3)), "b": (torch.int64, ())}
    assert frame.notes == {"run": "x"}
    assert (frame.axis("a"), frame.axis("b"), frame.axis("c")) == (2, 0, 0)


@pytest.mark.parametrize("rows", [0, 7, 50])
@pytest.mark.parametrize("notes", [{}, {"run": "x" * 20}, {"run": "€" * 20}])
def test_the_longest_message_and_its_notes_are_within_the_limits(rows: int, notes: dict[str, str]) -> None:
    row = torch.arange(rows)
    data = codec.encode({"item": Rows(row, torch.ones(rows, 3)), "bias": torch.ones(4)}, notes)
    bound = codec.limits_of(SCHEMA, NOTES)
    assert len(data) <= bound.whole
    assert int.from_bytes(data[:8], "little") <= bound.head
    assert codec.decode(data, SCHEMA, notes=NOTES).keys() == SCHEMA.keys()
    assert bound.whole <= 1.02 * len(header(entries(50))[0]) + 812 + 20 * 4 + 60


def entries(rows: int) -> list[tuple[str, Any]]:
    shapes = {"item": (rows, 3), "item#rows": (rows,), "bias": (4,)}
    return [(name, (torch.float32, shape)) for name, shape in shapes.items()]


def test_what_is_longer_is_refused_before_it_is_read() -> None:
    """One byte too long is not looked at, and a header too long is not parsed."""
    bound = codec.limits_of(SCHEMA)
    with patch("json.loads", side_effect=AssertionError("parsed")):
        with pytest.raises(BadInput, match=f"where {bound.whole:,} are the most"):
            codec.decode(bytes(bound.whole + 1), SCHEMA)
        with pytest.raises(BadInput, match="bytes in its header, where"):
            codec.decode(struct.pack("<Q", bound.head + 1) + b" " * (bound.head + 1), SCHEMA)
    with pytest.raises(BadInput, match="in its header"):
        framed(
            raw({f"part {k}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(30_000)})
        )


def test_a_header_that_promises_much_takes_no_memory() -> None:
    told = {"dtype": "F32", "shape": [1 << 20, 1 << 10], "data_offsets": [0, 1 << 32]}
    tracemalloc.start()
    with pytest.raises(BadInput):
        codec.decode(raw({"item": told}), {"item": Spec((1 << 10,), table=1 << 20)})
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_limits_grow_with_what_is_declared() -> None:
    small, large = (limits([("a", (torch.float32, (n,)))]) for n in (10, 1000))
    assert small.whole < large.whole
    assert limits([("a", (torch.float32, (10,)))], {"run": 100}).head >= small.head + 100
    assert OPEN.head == 1 << 20


def test_notes_are_refused_where_none_may_come() -> None:
    data = codec.encode({"bias": torch.ones(4)}, {"run": "x"})
    schema = {"bias": Spec((4,))}
    with pytest.raises(BadInput, match=r"note 'run'|bytes"):
        codec.decode(data, schema)
    with pytest.raises(BadInput, match="note 'run' of 1 letters"):
        codec.decode(data, schema, notes={"colour": 200})
    assert codec.decode(data, schema, notes={"run": 1}).keys() == {"bias"}
    assert codec.decode(data, schema, rest=True).keys() == {"bias"}


def test_optional_names_may_be_missing_and_no_others() -> None:
    data = codec.encode({"bias": torch.ones(4)})
    assert codec.decode(data, SCHEMA, optional={"item"}).keys() == {"bias"}
    with pytest.raises(BadInput, match="lacks 'item'"):
        codec.decode(data, SCHEMA, optional={"bias"})


@pytest.mark.parametrize(
    ("spec", "good", "bad"),
    [
        (Spec((2,), torch.int64, kind="items", below=9), [-1, 8], [-2, 8]),
        (Spec((2,), torch.int64, kind="items", below=9), [-1, 8], [0, 9]),
        (Spec((2,), torch.int64, below=2), [-1, 1], [2, 0]),
        (Spec((2,), torch.int32, kind="count"), [0, 9], [-1, 9]),
        (Spec((2,), torch.float64, kind="count"), [0.0, 2.5], [-0.5, 1.0]),
        (Spec((2,), kind="labels"), [0.0, 1.0], [1.01, 0.0]),
        (Spec((2,), kind="labels"), [0.0, 1.0], [-0.01, 0.0]),
        (Spec((2,)), [1e30, -1e30], [float("nan"), 0.0]),
        (Spec((2,)), [1e30, -1e30], [float("inf"), -float("inf")]),
    ],
)
def test_values_have_ranges(spec: Spec, good: list[float], bad: list[float]) -> None:
    given = torch.tensor(good).to(spec.dtype)
    back = codec.decode(codec.encode({"a": given}), {"a": spec})["a"]
    assert isinstance(back, torch.Tensor)
    assert torch.equal(back, given)
    with pytest.raises(BadInput, match="'a'"):
        codec.decode(codec.encode({"a": torch.tensor(bad).to(spec.dtype)}), {"a": spec})
