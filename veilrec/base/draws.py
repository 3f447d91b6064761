"""Draws: what an erasure draws once and keeps secret, because whoever knows it can undo a part of it."""

from __future__ import annotations

import hashlib
import math
import secrets
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.files import sync_folder
from veilrec.base.keys import Keys, normal_of, uniform_of
from veilrec.base.params import Params
from veilrec.base.tensors import raw, read, write
from veilrec.errors import BadInput, Corrupted

__all__ = ["Draws"]

ORIGINALS = "#originals"  # the name under which a file says what its draws were made for
TAGS = "#tags"  # behind a name: whose the words are


class Draws:
    """Random words by name. Each is drawn once: whoever asks again gets the same ones.

    They come from the operating system, or from keys, which make them the same every time: for tests and
    published tables, and not for a model that is released.

    >>> keyed = Draws(Keys.seed(0))
    >>> keyed.release, Draws().release
    (False, True)
    >>> keyed.fold("gender").uniform("lot", torch.tensor([7, 8])).round(decimals=2)
    tensor([0.7600, 0.6600], dtype=torch.float64)
    >>> secret = Draws()
    >>> torch.equal(secret.normal("null", 3), secret.normal("null", 3))
    True

    Attributes:
        keys: Where words come from; None for the operating system.
        path: The file in which words are kept, for its owner only; it is on the disk before anybody has
            one. None for none.
    """

    def __init__(self, keys: Keys | None = None, path: Path | None = None) -> None:
        self.keys, self.path = keys, path
        self._words: Params = {}
        self._lead = ""

    @classmethod
    def at(cls, path: Path, originals: Tensor, keys: Keys | None = None) -> Draws:
        """The draws for some vectors, kept in a file: those that are there already, or new ones.

        Vectors that were erased twice from the same originals, each time with other draws, tell more than
        either alone.

        Raises:
            BadInput: Where the file holds draws for other vectors.
            Corrupted: Where it is damaged.
        """
        draws, mark = cls(keys, path), _mark(originals)
        if path.exists():
            draws._words = read(path)
            found = draws._words.get(ORIGINALS)
            if found is None:
                raise Corrupted(f"{path}: holds no draws of an erasure; restore the file")
            if not torch.equal(found, mark):
                what = "holds what was drawn to erase other vectors"
                raise BadInput(path, what, "name another file; remove this one once that erasure is done")
        draws._words[ORIGINALS] = mark
        return draws

    @property
    def release(self) -> bool:
        """Whether nobody can repeat the draws, so that what was made with them may be given to others."""
        return self.keys is None

    def fold(self, name: str) -> Draws:
        """The same draws under a prefix: those of an attribute, or of one of several maps."""
        other = Draws(self.keys, self.path)
        other._words, other._lead = self._words, f"{self._lead}{name}/"
        return other

    def normal(self, name: str, *shape: int) -> Tensor:
        """Standard normal numbers, float64."""
        return normal_of(self.words(name, *shape))

    def uniform(self, name: str, tags: Tensor) -> Tensor:
        """``[n]`` a number in (0, 1) for each user, float64; `tags [n]` are hashes of the users' ids."""
        whole, there = self._lead + name, f"{self._lead}{name}{TAGS}"
        known = self._words.get(there, tags[:0])
        if len(new := tags[~torch.isin(tags, known)].unique()):
            own = _from_system(len(new)) if self.keys is None else self.keys.fold(whole).fold(new).value
            self._words[there] = known = torch.cat([known, new])
            self._words[whole] = torch.cat([self._words.get(whole, own[:0]), own])
            self._keep()
        order = known.argsort()
        place = order[torch.searchsorted(known[order], tags)]
        return uniform_of(self._words[whole][place], torch.float64)

    def words(self, name: str, *shape: int) -> Tensor:
        """Random int64 words."""
        whole = self._lead + name
        if whole not in self._words:
            own = _from_system(*shape) if self.keys is None else self.keys.fold(whole).words(*shape)
            self._words[whole] = own
            self._keep()
        known = self._words[whole]
        if tuple(known.shape) != shape:
            what = f'"{whole}" was drawn for {list(known.shape)}, and {list(shape)} is asked for'
            raise BadInput(self.path or "draws", what, "erase from the same vectors as before")
        return known

    def as_keys(self, name: str) -> Keys:
        """Keys of which any number of draws can be made that need not be kept."""
        return Keys(self.words(name, 1)[0])

    def remove(self) -> None:
        """Forget the draws, on the disk too: nobody needs them once what they made is safe."""
        self._words.clear()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            sync_folder(self.path.parent)

    def _keep(self) -> None:
        """Bring all words to the disk before anybody has them."""
        if self.path is not None:
            write(self.path, self._words, secret=True)


def _from_system(*shape: int) -> Tensor:
    """Random int64 words of the operating system."""
    count = math.prod(shape)
    if not count:
        return torch.zeros(shape, dtype=torch.int64)
    return torch.frombuffer(bytearray(secrets.token_bytes(8 * count)), dtype=torch.int64).reshape(shape)


def _mark(originals: Tensor) -> Tensor:
    """``[32]`` bytes by which vectors are known again."""
    digest = hashlib.sha256(str((originals.dtype, list(originals.shape))).encode())
    digest.update(raw(originals))
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
