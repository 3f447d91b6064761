"""Mutations of messages and stores: what hypothesis makes of good ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from veilrec.base.tensors import NAMES

__all__ = ["broken", "odd_tensor", "odd_values"]

NUMBERS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, float("nan"), float("inf"), 7.0, -7.0, 255.0, 2.0**40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def odd_tensor(draw: st.DrawFn, like: Tensor | None = None) -> Tensor:
    """A tensor of any type and shape, or of those of another, with values that few expect."""
    shape = draw(st.lists(st.integers(0, 5), max_size=3)) if like is None else list(like.shape)
    dtype = draw(st.sampled_from(list(NAMES))) if like is None else like.dtype
    value = draw(st.sampled_from(NUMBERS))
    if not dtype.is_floating_point:
        value = max(-(2.0**40), min(2.0**40, value)) if value == value else 0.0
        return torch.full(shape, 0, dtype=torch.int64).add(int(value)).to(dtype)
    return torch.full(shape, value, dtype=torch.float64).to(dtype)


@st.composite
def odd_values(draw: st.DrawFn, data: bytes) -> bytes:
    """A message of the same form, one of whose tensors has odd values in one place or in all."""
    tensors = load(data)
    name = draw(st.sampled_from(sorted(tensors)))
    new, place = draw(odd_tensor(tensors[name])), draw(st.integers(-1, max(0, tensors[name].numel() - 1)))
    if place >= 0 and new.numel():
        flat = tensors[name].clone().flatten()
        flat[place] = new.flatten()[place]
        new = flat.reshape(tensors[name].shape)
    return bytes(save({**tensors, name: new}, _notes(data)))


@st.composite
def broken(draw: st.DrawFn, data: bytes) -> bytes:
    """A message with other bytes, another header, or other tensors."""
    how = draw(st.sampled_from(("bytes", "cut", "head", "entry", "tensor")))
    if how == "bytes":
        changed = bytearray(data)
        for _ in range(draw(st.integers(1, 4))):
            changed[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        return bytes(changed)
    if how == "cut":
        place = draw(st.integers(0, len(data)))
        return data[:place] + draw(st.binary(max_size=20)) + data[place + draw(st.integers(0, 20)) :]
    if how == "tensor":
        tensors = load(data)
        name = draw(st.sampled_from([*sorted(tensors), "another", "post/x", "each/x"]))
        return bytes(save({**tensors, name: draw(odd_tensor())}, _notes(data)))
    head, body = _parted(data)
    if how == "head":
        head[draw(st.sampled_from([*head, "__metadata__", "another"]))] = draw(JSON)
    else:
        name = draw(st.sampled_from([name for name in head if name != "__metadata__"]))
        head[name][draw(st.sampled_from(["dtype", "shape", "data_offsets", "more"]))] = draw(JSON)
    text = json.dumps(head).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + body


def _parted(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def _notes(data: bytes) -> Mapping[str, str] | None:
    found: Mapping[str, str] | None = _parted(data)[0].get("__metadata__")
    return found
