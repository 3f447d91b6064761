"""Bounds: the least and the most that a number of a recipe may be, declared beside it and checked here alone.

An annotation carries them: ``dim: Width`` says that a width is meant, and how wide it may be. A recipe's
values are held against them where they are fitted (`recipe.settings`), those of Python where an entry is made
(`hold`, `bounded`). They are far beyond what anybody wants: what is within them and yet too much for a
machine is refused by the estimate of what a run needs.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from veilrec.errors import BadInput, nearest

__all__ = [
    "LONGEST",
    "Age",
    "Amount",
    "Border",
    "Bounds",
    "Least",
    "Many",
    "PartShare",
    "Positive",
    "Rate",
    "Rounds",
    "RoundsOrNone",
    "Scales",
    "Seed",
    "Share",
    "ShareBelowOne",
    "Steps",
    "Width",
    "WidthOrNone",
    "bounded",
    "bounds_of",
    "check",
    "check_length",
    "fitted",
    "hints_of",
    "hold",
    "kind_of",
    "short",
    "takes",
]

LONGEST = 1_000  # entries of one list or table among the settings
DIGITS, FULL = 24, 10**6  # of a whole number that an error shows; below which a float is shown in full
Made = TypeVar("Made", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True)
class Bounds:
    """The least and the most of a number.

    Attributes:
        least, most: Both are allowed themselves,
        above, below: but for the least where it must be above that, and the most where it must be below.
    """

    least: float
    most: float
    above: bool = False
    below: bool = False

    def __str__(self) -> str:
        first = f"above {short(self.least)}" if self.above else f"from {short(self.least)}"
        if self.most == math.inf:
            return first if self.above else f"{first} upwards"
        link = {(False, False): "to", (False, True): "to below", (True, False): "and up to"}
        last = link.get((self.above, self.below), "and below")
        return f"{first} {last} {short(self.most)}"

    def check(self, where: str, value: float, kind: str = "a number") -> None:
        """Refuse a number that is not within.

        Raises:
            BadInput: Naming the setting, its value, and both bounds.
        """
        low = value > self.least if self.above else value >= self.least
        high = value < self.most if self.below else value <= self.most
        if low and high:
            return
        what = "no amount" if not (low or high) else "too large" if low else "too small"  # NaN is neither
        raise BadInput(where, f"{short(value)} is {what}", f"give {kind} {self}")


Seed = Annotated[int, Bounds(0, 2**63 - 1)]
Width = Annotated[int, Bounds(1, 65_536)]  # of a layer or a vector
WidthOrNone = Annotated[int, Bounds(0, 65_536)]
Rounds = Annotated[int, Bounds(1, 1_000_000)]
RoundsOrNone = Annotated[int, Bounds(0, 1_000_000)]
Many = Annotated[int, Bounds(1, 1_000_000_000)]  # of what memory does not grow with
Share = Annotated[float, Bounds(0, 1)]
PartShare = Annotated[float, Bounds(0, 1, above=True)]
ShareBelowOne = Annotated[float, Bounds(0, 1, below=True)]
Rate = Annotated[float, Bounds(0, 1e30)]  # of learning
Amount = Annotated[float, Bounds(0, 1e30)]  # a weight in a loss, a deviation, an ε that may be none
Positive = Annotated[float, Bounds(0, 1e30, above=True)]
Scales = Positive | Mapping[str, Positive]  # standard deviations, one for all or by part
Steps = Annotated[int, Bounds(1, 100_000)]  # of something that learns
Border = Annotated[float, Bounds(-1e15, 1e15)]  # between two classes of an amount
Age = Annotated[int, Bounds(0, 200)]  # in years
Least = Annotated[int, Bounds(0, 1_000_000)]  # events of whoever stays


def check(where: str, value: Any, annotation: Any) -> None:
    """Hold a value, and whatever is in it, against the bounds in its annotation.

    Raises:
        BadInput: Naming the setting, its value and its bounds; of a long list, its length.
    """
    kind = kind_of(annotation)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for member in inner:
            if not (isinstance(value, str) and kind_of(member) in (int, float)):
                check(where, value, member)  # those for other kinds of values say nothing
    elif kind in (int, float) and isinstance(value, str):
        raise BadInput(where, f'"{value}" is text', "give a number, without quotes")
    elif isinstance(value, Real) and not isinstance(value, bool):
        bounds = bounds_of(annotation)
        if bounds is not None and (kind is float or isinstance(value, Integral)):
            words = "a number" if kind is float else "a whole number"
            bounds.check(where, value, words)  # type: ignore[arg-type]  # a real number
    elif isinstance(value, Mapping) and inner:
        check_length(where, value)
        for name, entry in value.items():
            check(f"{where}.{name}", entry, inner[-1])
    elif isinstance(value, list | tuple | set | frozenset) and inner:
        check_length(where, value)
        for place, entry in enumerate(value):
            check(f"{where}.{place}", entry, inner[0])


def hold(made: Any, section: str) -> None:
    """Hold the fields of a dataclass that was just made against their bounds."""
    hints = hints_of(made.__class__)
    for field in fields(made):
        check(f"{section}.{field.name}", getattr(made, field.name), hints[field.name])


def bounded(section: str, lacking: str = "") -> Callable[[Made], Made]:
    """A function or a constructor that refuses arguments that it has not, or out of their bounds.

    What to do where one is `lacking` may be told.
    """

    def wrap(function: Made) -> Made:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            hints = hints_of(function)
            for name, value in fitted(section, function, signature, given, named, lacking).items():
                if name in hints:
                    check(f"{section}.{name}", value, hints[name])
            return function(*given, **named)

        return call  # type: ignore[return-value]

    return wrap


def takes(section: str) -> Callable[[Kind], Kind]:
    """A dataclass whose constructor refuses arguments that it has not, in one line."""

    def wrap(kind: Kind) -> Kind:
        made: Any = vars(kind)["__init__"]
        signature = inspect.signature(made)

        @functools.wraps(made)
        def begin(*given: Any, **named: Any) -> None:
            fitted(section, kind, signature, given, named)
            made(*given, **named)

        setattr(kind, "__init__", begin)  # noqa: B010  # mypy
        return kind

    return wrap


def fitted(
    section: str,
    target: Callable[..., Any],
    signature: inspect.Signature,
    given: Sequence[Any],
    named: Mapping[str, Any],
    lacking: str = "",
    *,
    some: bool = False,
) -> dict[str, Any]:
    """The arguments of a call by name, or only `some` of them.

    Raises:
        BadInput: Where there is one too many, or one is missing.
    """
    try:
        return (signature.bind_partial if some else signature.bind)(*given, **named).arguments
    except TypeError as error:
        who = target.__qualname__.removesuffix(".__init__")
        known = [name for name, one in signature.parameters.items() if one.kind is not one.POSITIONAL_ONLY]
        if other := [name for name in named if name not in known]:
            fix = nearest(other[0], [name for name in known if name != "self"])
            raise BadInput(section, f"{who} has no argument {other[0]}", fix) from error
        raise BadInput(section, f"{who}: {error}", lacking) from error


def bounds_of(annotation: Any) -> Bounds | None:
    """The bounds of a number, where an annotation has any."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((note for note in annotation.__metadata__ if isinstance(note, Bounds)), None)


def kind_of(annotation: Any) -> Any:
    """An annotation without its bounds."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


@functools.cache
def hints_of(target: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, of a constructor, or of the fields of a dataclass, bounds and all.

    Raises:
        BadInput: Where one names something that does not exist at run time.
    """
    own = inspect.isclass(target) and not is_dataclass(target)
    try:  # a field is read where its class stands: a subclass may be elsewhere
        return get_type_hints(target.__init__ if own else target, include_extras=True)
    except NameError as error:
        where, fix = getattr(target, "__name__", str(target)), "import it at run time"
        raise BadInput(where, f"an annotation cannot be read: {error}", fix) from error


def check_length(where: str, value: Collection[Any]) -> None:
    """Refuse a list or a table of more entries than any setting has."""
    if len(value) > LONGEST:
        raise BadInput(where, f"{len(value):,} entries are too many", f"give at most {LONGEST:,}")


def short(number: float) -> str:
    """A number as people write it, however long it is."""
    if isinstance(number, Integral):
        digits = math.log10(abs(number) or 1)
        return f"{number:,}" if digits < DIGITS else f"{'-' * (number < 0)}10^{digits:.0f}"
    return f"{number:,.0f}" if number.is_integer() and abs(number) < FULL else f"{number:g}"
