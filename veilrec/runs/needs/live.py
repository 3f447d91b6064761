"""Live: how many bytes of tensors are alive at once while something is worked out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Grown", "grown"]

T = TypeVar("T")


class Grown(NamedTuple):
    """The bytes of tensors that a piece of work made.

    Attributes:
        most: As many as were ever alive at once.
        left: As many as were alive when it was done, those of its result.
    """

    most: int
    left: int


def grown(work: Callable[[], T]) -> tuple[T, Grown]:
    """The result of some work, and the bytes of the tensors that it made.

    What was there before counts for nothing, nor do views of it; what other libraries take is not seen.

    >>> import torch
    >>> grown(lambda: torch.zeros(1000).double().sum())[1]
    Grown(most=12000, left=8)
    """
    with _Live() as live:
        found = work()
        left = live.now
    return found, Grown(live.most, left)


class _Live(TorchDispatchMode):
    """Follows every storage from the operation that makes it to its end."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here; else torch imports its compiler: 70 MB, and a second

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._seen: dict[int, Any] = {}

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for tensor in _tensors((args, kwargs)):
            self._note(tensor, made=False)
        result = function(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._note(tensor, made=True)
        return result

    def _note(self, tensor: Tensor, *, made: bool) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes() if made else 0
        if key in self._seen:
            return

        def gone(_: object) -> None:
            self._seen.pop(key, None)
            self.now -= size

        self._seen[key] = weakref.ref(storage, gone)
        self.now += size
        self.most = max(self.most, self.now)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)
