"""What the tests of noise share: a judge of draws, a device to draw on, and a loop that blurs by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from tests.reference import GOLDEN, WORD, Reference, Upload, Weights, fold, hash_of, mix, word
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params
from veilrec.defence import Defence
from veilrec.defences.noise.sampling import BitSource, Kind, Sampler, Seeded
from veilrec.defences.noise.sampling import half_of as half_of_row
from veilrec.model import Device

SHAPES = {
    "first": (125, 40),
    "middle.weight": (7, 3),
    "last.bias": (5000,),
}  # 5,000 values to judge in two of them
CLIP = 0.5


def values(clients: int, dtype: torch.dtype = torch.float32) -> Params:
    """An upload of some clients, with values on both sides of the bound."""
    keys = Keys.seed(11)
    draw = {n: keys.fold(n).uniform(clients, *shape, dtype=torch.float64) for n, shape in SHAPES.items()}
    return {name: (4 * CLIP * (value - 0.5)).to(dtype) for name, value in draw.items()}


def device(keys: Keys, sent: Params | None = None) -> Device:
    """A device of which only keys and letter matter."""
    number = torch.tensor([0, 0])
    return Device(None, sent or {}, {}, keys, number[0], number[1])  # type: ignore[arg-type]


def blurred(defence: Defence, upload: Message, keys: Keys) -> Params:
    """What leaves the devices whose keys are given, ``[c]``: the engine's way, all at once."""

    def one(key: Tensor, upload: Message) -> Message:
        return defence.on_upload(upload, device(Keys(key)))

    return vmap(one)(keys.value, upload)  # type: ignore[no-any-return]


def clients(n: int, round: int = 0) -> Keys:
    """The keys of some clients for a round, ``[n]``."""
    return Keys.seed(5).fold(round).fold(torch.arange(n))


def noise_of(defence: Defence, n: int = 25, round: int = 0, dtype: torch.dtype = torch.float32) -> Params:
    """The noise alone, ``[n, …]``: what leaves, less what should have been clipped."""
    plain = values(n, dtype)
    sent = blurred(defence, {**plain}, clients(n, round))
    return {name: (sent[name].double() - plain[name].double().clamp(-CLIP, CLIP)) for name in plain}


def cdf(kind: str, x: Tensor) -> Tensor:
    """The law of noise with scale 1."""
    if kind == "gaussian":
        return 0.5 * torch.special.erfc(-x / math.sqrt(2))
    return torch.where(x < 0, 0.5 * x.exp(), 1 - 0.5 * (-x).exp())


def correlation(a: Tensor, b: Tensor) -> float:
    a, b = a.flatten(), b.flatten()
    return float(((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std()).clamp(min=1e-300))


def faults(kind: str, scale: float, noise: Params, later: Params) -> list[str]:
    """What is wrong with noise in two rounds, ``[25, …]`` each; a false alarm in 10⁵ for each line."""
    found = []
    for name in ("first", "last.bias"):
        drawn, n = noise[name].flatten(1) / scale, noise[name].numel()
        assert n == 125_000
        size, spread = (1.0, math.sqrt(2)) if kind == "laplace" else (math.sqrt(2 / math.pi), 1.0)
        if abs(float(drawn.abs().mean()) / size - 1) > 0.0125:
            found.append(f"{name}: size {float(drawn.abs().mean()) / size:.4f}")
        if abs(float(drawn.mean())) > 4.417 * spread / math.sqrt(n):
            found.append(f"{name}: mean {float(drawn.mean()):.4f}")
        some = drawn.flatten()[::25].sort().values  # 5,000 of them
        steps = torch.arange(5001, dtype=torch.float64) / 5000
        law = cdf(kind, some)
        distance = float(torch.maximum((steps[1:] - law).abs(), (law - steps[:-1]).abs()).max())
        if distance > 0.0381:
            found.append(f"{name}: shape {distance:.4f}")
        pairs = {
            "coordinates": (drawn[:, :-1], drawn[:, 1:]),
            "rows": (drawn[:, :-40], drawn[:, 40:]),
            "clients": (drawn[:-1], drawn[1:]),
            "rounds": (drawn, later[name].flatten(1)),
        }
        for what, (a, b) in pairs.items():
            if abs(correlation(a, b)) > 4.42 / math.sqrt(a.numel()):
                found.append(f"{name}: {what} {correlation(a, b):.4f}")
    a, b = noise["first"].flatten(), noise["last.bias"].flatten()
    if abs(correlation(a, b)) > 4.42 / math.sqrt(a.numel()):
        found.append(f"tensors {correlation(a, b):.4f}")
    return found


class Noised(Reference):
    """A federation in slow motion whose clients clip and blur what they upload, number by number."""

    def __init__(self, *arguments: Any, noise: dict[str, Any], **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.noise = {"by": "value", "rows": "touched", "what": "weights", **noise}
        self.step = step_of(self.noise["scale"], self.noise["clip"])

    def learn(self, client: int) -> Upload:
        """One client's round, and what it does before it sends."""
        upload, how = super().learn(client), self.noise
        touched = list(range(self.n_items)) if how["rows"] == "all" else upload.touched
        meant = {n: touched if "item" in n else list(range(len(w))) for n, w in upload.values.items()}
        bases = {n: self.server[n] if how["what"] == "change" else 0 * w for n, w in upload.values.items()}
        changes = {n: upload.values[n] - bases[n] for n in bases}
        factor = 1.0
        if how["by"] == "norm":
            length = math.sqrt(sum(float(changes[n][meant[n]].double().square().sum()) for n in changes))
            factor = min(1.0, how["clip"] * (1 - 2**-20) / length)
        sent: Weights = {}
        for name, change in changes.items():
            key = fold(self.key, "client", self.rounds, hash_of(self.names[client]), "upload", name)
            cut = self.cut(change.double() * factor)
            sent[name] = upload.values[name].clone()
            noised = bases[name] + cut + self.draw(key, change, meant[name], table="item" in name)
            sent[name][meant[name]] = noised[meant[name]].to(change.dtype)
        return Upload(sent, touched, upload.examples)

    def cut(self, change: Tensor) -> Tensor:
        """Within the bound, and on the lattice."""
        if self.noise["by"] == "norm":
            return (change / self.step).trunc() * self.step
        bound = math.floor(self.noise["clip"] / self.step) * self.step
        return (change.clamp(-bound, bound) / self.step).round() * self.step

    def draw(self, key: int, like: Tensor, rows: list[int], *, table: bool) -> Tensor:
        """Noise for some rows of a weight; the others have none."""
        noise = torch.zeros(like.shape, dtype=torch.float64)
        wide = noise.reshape(len(like), -1) if table else noise.reshape(1, -1)  # what is no table is one row
        for row in rows if table else [0]:
            for column in range(wide.shape[1]):
                drawn = number(self.noise["kind"], key, row, column, wide.shape[1])
                wide[row, column] = round(drawn * self.noise["scale"] / self.step) * self.step
        return noise


def steps_of(source: BitSource, kind: Kind, scale: float, rows: int, width: int) -> NDArray[np.float32]:
    """``[rows, width]`` the noise of whole rows in steps, what is rare included."""
    sampler = Sampler(source, kind, scale, half_of_row(width), rows)
    noise = sampler.draw(slice(0, rows)).copy()
    row, column, far = sampler.rest()
    assert not noise[row, column].any()  # left for the end
    noise[row, column] = far
    return noise[:, :width]


def seeded(key: Tensor, row: Tensor, width: int) -> Seeded:
    """The bits of rows ``[n]`` with keys ``[n]``."""
    return Seeded(key.numpy().view(np.uint64)[:, None], row.numpy().view(np.uint64), [width])


def other_keys(patch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Plant keys that are not those of the clients and weights."""
    original = Seeded.__init__
    patch.setattr(Seeded, "__init__", lambda self, key, *rest: original(self, change(key), *rest))


def step_of(scale: float, clip: float) -> float:
    """The lattice, from the scale and the clip: at most 1/1,024 of either."""
    return float(2.0 ** math.floor(math.log2(min(scale, clip) / 1024)))


def number(kind: str, key: int, row: int, column: int, width: int) -> float:
    """A number of the noise with scale 1: two are made of the halves of one word."""
    if kind == "laplace":
        x = half_of(key, row, column, width)
        return math.copysign(exponential(x, key, row, column, width), x)
    first = column - column % 2
    radius = math.sqrt(2 * exponential(half_of(key, row, first, width), key, row, first, width))
    angle = math.pi * half_of(key, row, first + 1, width) / 2**31
    return radius * (math.sin(angle) if column % 2 else math.cos(angle))


def half_of(key: int, row: int, column: int, width: int) -> int:
    """A signed number of 32 bits."""
    half = word(key, row * ((width + 1) // 2) + column // 2) >> (32 * (column % 2)) & 0xFFFFFFFF
    return half - 2**32 if half >> 31 else half


def exponential(x: int, key: int, row: int, column: int, width: int) -> float:
    """From 31 bits; where ten leading ones are zero, what is beyond is drawn anew, as often as it takes."""
    if abs(x) >= 2**21:
        return -math.log(abs(x) / 2**31)
    first = key + (row * ((width + 1) // 2) + 1) * GOLDEN
    size, turn, tag = 10 * math.log(2), 1, hash_of("tail") | 1
    while (more := mix(((first + column * GOLDEN) ^ (turn * tag)) & WORD)) < 2**32:
        size, turn = size + 32 * math.log(2), turn + 1
    return size - math.log(((more >> 11) + 0.5) * 2**-53)
