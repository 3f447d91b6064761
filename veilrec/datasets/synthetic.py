"""An embedded world: made-up people with tastes and attributes, and the films they watched.

Every event of a user is drawn from a mixture of shelves, each a distribution over films. With
probability 1 - share the shelf is one of the user's tastes, which have nothing to do with attributes;
with probability share it belongs to a class of the user (women's shelf, the north's shelf, …). The share
grows with `leakage` and is 0 at ``leakage = 0``, where behaviour reveals nothing about attributes.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from veilrec.base.keys import Keys, below
from veilrec.base.limits.bounds import Bounds, Least, Many, Seed, Share, bounded
from veilrec.base.limits.fits import Need, refuse
from veilrec.base.limits.machine import room
from veilrec.base.rows import ragged, within
from veilrec.datasets.common.fiction import titles
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["synthetic"]

CLASSES = {  # names of the classes, and how many of a hundred people are in each
    "gender": {"female": 42, "male": 58},
    "age": {"under 35": 48, "35 to 50": 30, "over 50": 22},
    "region": {"north": 26, "south": 20, "coast": 16, "hills": 13, "lakes": 10, "plains": 8, "islands": 7},
}
YEARS = ((18, 34), (35, 50), (51, 80))  # ages of the three groups, which tell nothing beyond their group
SHARE = 0.95  # of the events that follow a class at leakage 1
USUAL, LEAST, MOST = 40, 20, 2_000  # events of a user: on average, at least, at most
FIRST, DAYS = 1_577_836_800, 3 * 365  # the world begins on 2020-01-01 and lasts three years
OFFSET, STEEPNESS = 5, 0.9  # fame of a film: (rank + OFFSET) ** -STEEPNESS
STRAY, EVEN = 0.02, 0.02  # films of other kinds on a shelf; chance that any film at all is taken
CHOOSY = 2.5  # how much users differ in taste
BLOCK = 4_096  # users drawn at a time
SHELF, EVENT, FILM = 32, 350, 500  # bytes of a film on a shelf, of an event and of a film, as measured
USUAL_TASTES = 20


@bounded("data")
def synthetic(
    *,
    users: Annotated[int, Bounds(1, 10_000_000)] = 300,
    items: Annotated[int, Bounds(4, 10_000_000)] = 200,
    events: Many | None = None,
    least: Least | None = None,
    leakage: Share = 0.7,
    tastes: Annotated[int, Bounds(1, 1_000)] = 6,
    seed: Seed = 0,
    split_seed: Seed = 0,
) -> Interactions:
    """A world with long-tailed users and films, three attributes with 2, 3 and 7 classes, and ages in years.

    >>> log = synthetic(users=4, items=12)
    >>> log.n_users, log.n_items, len(log)
    (4, 12, 16)
    >>> log.user_ids[0], log.item_ids[0], log.texts[0]
    ('u0001', 'film-0001', 'My Secret Bride (1975)')
    >>> log.attributes["gender"], log.classes["gender"]
    (tensor([0, 0, 0, 1]), ('female', 'male'))

    Args:
        users, items: Numbers of users and films. A film that nobody watched is still there.
        events: Number of events in all; by default about 40 a user.
        least: Events of the least active user; by default 20, or a quarter of the items if that is less.
        leakage: How strongly attributes shape behaviour, from 0 (not at all) to 1.
        tastes: Number of kinds of film.
        seed: Another seed, another world.
        split_seed: Decides the order of events at the same time, and so what is held out.
    """
    least = min(LEAST, max(1, items // 4)) if least is None else least
    most = min(MOST, items // 2)
    events = min(max(USUAL, least), (least + most) // 2) * users if events is None else events
    _check(users, items, events, least, most)
    _check_room(users, items, events, tastes)
    keys = Keys.seed(seed).fold("synthetic")
    attributes = {name: _classes(keys.fold(name), users, shares) for name, shares in CLASSES.items()}
    kind = keys.fold("kind").integers(tastes, items)
    counts = _counts(keys.fold("activity"), users, events, least, most)
    user, item = _watch(
        keys.fold("watch"), _shelves(keys, kind, tastes), _habits(keys, attributes, tastes, leakage), counts
    )
    return Interactions.build(
        user,
        item,
        _ids("u", users),
        _ids("film-", items),
        rating=_ratings(keys.fold("rating"), user, item),
        time=_times(keys.fold("time"), user, item, counts),
        attributes=attributes,
        classes={name: tuple(shares) for name, shares in CLASSES.items()},
        values={"age in years": _years(keys.fold("age in years"), attributes["age"])},
        texts=titles(keys.fold("titles"), kind),
        split_seed=split_seed,
        name="synthetic",
    )


def _check(users: int, items: int, events: int, least: int, most: int) -> None:
    """Refuse a world that cannot be."""
    if not 1 <= least <= most:
        raise BadInput("data.least", f"{least} events a user", f"with {items} items, from 1 to {most}")
    if not users * least <= events <= users * most:
        raise BadInput("data.events", f"{events:,} events", f"from {users * least:,} to {users * most:,} fit")


def _check_room(users: int, items: int, events: int, tastes: int) -> None:
    """Refuse a world that does not fit into memory while it is made."""
    kinds = 1 + sum(map(len, CLASSES.values()))
    shelves = ("data.items", items) if tastes <= USUAL_TASTES else ("data.tastes", tastes)
    parts = (
        Need("shelves", SHELF * kinds * tastes * items, *shelves),
        Need("films", FILM * items, "data.items", items),
        Need("events", EVENT * events, "data.users", users),
    )
    refuse("the world", parts, room())


def _ids(prefix: str, count: int) -> list[str]:
    width = max(4, len(str(count)))
    return [f"{prefix}{number:0{width}d}" for number in range(1, count + 1)]


def _classes(keys: Keys, users: int, shares: dict[str, int]) -> Tensor:
    """``[users]`` a class for each, by its share."""
    ends = torch.tensor(list(shares.values())).cumsum(0)
    return torch.bucketize(keys.integers(int(ends[-1]), users), ends, right=True)


def _years(keys: Keys, group: Tensor) -> Tensor:
    """``[users]`` an age within each user's group."""
    least, most = torch.tensor(YEARS)[group].unbind(1)
    return (least + keys.integers(most - least + 1, len(group))).double()


def _counts(keys: Keys, users: int, events: int, least: int, most: int) -> Tensor:
    """``[users]`` events of each: log-normal above `least`, cut at `most`, with exactly `events` in all."""
    weight = keys.normal(users, dtype=torch.float64).exp()
    room = torch.full((users,), float(most - least), dtype=torch.float64)
    extra = torch.zeros(users, dtype=torch.float64)
    left = float(events - users * least)
    while left > 0.5:  # what the most active cannot take goes to the others
        share = torch.where(extra < room, weight, 0.0)
        extra = torch.minimum(room, extra + left * share / share.sum())
        left = events - users * least - float(extra.sum())
    whole = extra.floor()
    rest = int(events - users * least - whole.sum())
    whole[(extra - whole).argsort(descending=True, stable=True)[:rest]] += 1
    return whole.long() + least


def _shelves(keys: Keys, kind: Tensor, tastes: int) -> Tensor:
    """``[tastes * leanings, items]`` chances of each film: the films of a kind, all or those of a class."""
    items = len(kind)
    fame = (keys.fold("fame").order(items).argsort() + OFFSET).double().pow(-STEEPNESS)
    own = [torch.ones(items, dtype=torch.bool)]
    for name, shares in CLASSES.items():
        lean = keys.fold(name).fold("lean").integers(len(shares), items)
        own += [lean == number for number in range(len(shares))]
    rows = [fame * torch.where(kind == taste, 1, STRAY) * lean for taste in range(tastes) for lean in own]
    shelves = torch.stack(rows)
    return (1 - EVEN) * shelves / shelves.sum(1, keepdim=True).clamp(min=1e-12) + EVEN / items


def _habits(keys: Keys, attributes: dict[str, Tensor], tastes: int, leakage: float) -> tuple[Tensor, Tensor]:
    """Chances that a user wants each kind ``[users, tastes]``, and films of a class ``[users, leanings]``."""
    users, share = len(attributes["gender"]), SHARE * leakage
    taste = (CHOOSY * keys.fold("taste").normal(users, tastes, dtype=torch.float64)).softmax(1)
    free = torch.full((users, 1), 1 - share, dtype=torch.float64)
    own = [torch.nn.functional.one_hot(attributes[name], len(CLASSES[name])) for name in CLASSES]
    return taste, torch.cat([free, *(rows * (share / len(CLASSES)) for rows in own)], dim=1)


def _watch(
    keys: Keys, shelves: Tensor, habits: tuple[Tensor, Tensor], counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Pairs of users and films: ``counts[u]`` different films for each user, drawn until there are enough."""
    ends = _ends(shelves)
    parts = []
    for start in range(0, len(counts), BLOCK):  # a user's draws are keyed by the user: blocks change nothing
        person = torch.arange(start, min(start + BLOCK, len(counts)))
        taste, lean = (_ends(habit[person]) for habit in habits)
        user, item = _fill(keys.fold(person), ends, taste, lean, counts[person])
        parts.append((user + start, item))
    return torch.cat([user for user, _ in parts]), torch.cat([item for _, item in parts])


def _fill(keys: Keys, ends: Tensor, taste: Tensor, lean: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs of some users; drawing with repeats and keeping new ones is drawing without repeats."""
    items, leanings = ends.shape[1], lean.shape[1]
    missing, drawn, tries = counts.clone(), torch.zeros_like(counts), 2
    seen = torch.empty(0, dtype=torch.long)
    while int(missing.sum()):
        amount = torch.where(missing > 0, missing * tries + 8, 0)
        user, place = ragged(amount)
        by_kind, by_class, film = (
            _unit(keys.fold(tag).pick(user).at(drawn[user] + place)) for tag in ("kind", "class", "film")
        )
        shelf = _pick(taste, user, by_kind) * leanings + _pick(lean, user, by_class)
        fresh = _fresh(seen, user * items + _pick(ends, shelf, film))
        owner = fresh // items
        rank = within(owner, torch.bincount(owner, minlength=len(counts)))
        seen = torch.cat([seen, fresh[rank < missing[owner]]]).sort().values
        missing = counts - torch.bincount(seen // items, minlength=len(counts))
        drawn, tries = drawn + amount, tries * 2
    return seen // items, seen % items


def _ends(chances: Tensor) -> Tensor:
    """Cumulated rows, of which row r runs from r to r + 1: all of them together ascend."""
    total = chances.cumsum(1)
    return total / total[:, -1:] + torch.arange(len(chances))[:, None]


def _pick(ends: Tensor, row: Tensor, unit: Tensor) -> Tensor:
    """``[draws]`` a column of each given row, by inverse CDF; row r of `ends` runs from r to r + 1."""
    width = ends.shape[1]
    return (torch.searchsorted(ends.reshape(-1), row + unit) - row * width).clamp(0, width - 1)


def _fresh(seen: Tensor, pair: Tensor) -> Tensor:
    """The pairs that are neither in the sorted `seen` nor earlier in `pair`, in the order they came."""
    order = pair.argsort(stable=True)
    ascending = pair[order]
    new = torch.ones(len(pair), dtype=torch.bool)
    new[1:] = ascending[1:] != ascending[:-1]
    if len(seen):
        place = torch.searchsorted(seen, ascending).clamp(max=len(seen) - 1)
        new &= seen[place] != ascending
    return pair[order[new].sort().values]


def _unit(words: Tensor) -> Tensor:
    """Random words to the open interval (0, 1)."""
    return (((words >> 12) & ((1 << 52) - 1)).double() + 0.5) * 2.0**-52


def _ratings(keys: Keys, user: Tensor, item: Tensor) -> Tensor:
    """``[events]`` 1 to 5, mostly 3 and 4; they depend on nobody and nothing."""
    percent = below(keys.fold(user).at(item), 100)
    return torch.bucketize(percent, torch.tensor([6, 17, 44, 78]), right=True).float() + 1


def _times(keys: Keys, user: Tensor, item: Tensor, counts: Tensor) -> Tensor:
    """``[events]`` seconds since 1970: evenings of about six films, in an order that tells nothing."""
    person = keys.fold(user)
    evening = below(person.fold("evening").at(item), (counts[user] + 5) // 6)
    day = below(person.fold("day").at(evening), DAYS)
    minute = below(person.fold("minute").at(item), 180)
    return FIRST + day * 86_400 + 18 * 3_600 + minute * 60
