"""Balance: users of larger classes are left out at random until every class is as small as the smallest.

FedAU² (Li et al., 2026) trains and attacks on such subsets: 2 × 273 of the 943 users of MovieLens-100K, and
2 × 1,709 of the 6,040 of MovieLens-1M.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.datasets.reading.assemble import counted
from veilrec.errors import BadInput, nearest
from veilrec.interactions import Interactions, id_hashes

__all__: list[str] = []


def balanced(log: Interactions, attribute: str, split_seed: int = 0) -> Interactions:
    """A log with as many users of one class of an attribute as of any other; with no attribute as it is.

    Who stays is decided by a hash of the original id under `split_seed`, never by the order of rows. Users
    whose class is unknown go too. A class that nobody is in does not count. Items that nobody touches any
    more go as well, as if those users had never been there: no model could learn anything about them, and
    among sampled candidates they would be easy to rank low. The report says how many of each there were.

    Raises:
        BadInput: Where the data has no such attribute, or fewer than two of its classes have users.
    """
    if not attribute:
        return log
    _check(log, attribute)
    label = log.attributes[attribute]
    counts = torch.bincount(label[label >= 0], minlength=len(log.classes[attribute]))
    if int((counts > 0).sum()) < 2:
        what = f"fewer than two classes of {attribute} have users"
        raise BadInput("data.balance", what, "choose an attribute with two or more")
    least = int(counts[counts > 0].min())
    stay = _lowest(label, least, Keys.seed(split_seed).fold("balanced users").fold(id_hashes(log.user_ids)))
    smaller, gone = _among(log, stay)
    return replace(smaller, report=(*log.report, *_told(log, attribute, counts, least, gone)))


def _check(log: Interactions, attribute: str) -> None:
    if attribute in log.attributes:
        return
    if attribute in log.values:
        what = f'"{attribute}" is a number and has no classes'
        raise BadInput("data.balance", what, nearest("", log.attributes))
    what = f'the data has no attribute "{attribute}"'
    raise BadInput("data.balance", what, nearest(attribute, log.attributes))


def _lowest(label: Tensor, least: int, keys: Keys) -> Tensor:
    """``[users]`` True for those whose word is among the `least` lowest of their class; -1 is no class."""
    stay = torch.zeros(len(label), dtype=torch.bool)
    order = keys.value.argsort(stable=True)  # [users]
    for one in label[label >= 0].unique():
        stay[order[label[order] == one][:least]] = True
    return stay


def _among(log: Interactions, stay: Tensor) -> tuple[Interactions, int]:
    """The log of some users (a mask, ``[users]``), and how many items nobody touches any more."""
    events = stay[log.user]
    before, after = (
        torch.bincount(items, minlength=log.n_items) > 0 for items in (log.item, log.item[events])
    )
    kept = after | ~before  # what nobody touched from the start is part of the world
    users, items = (mask.nonzero().squeeze(1).tolist() for mask in (stay, kept))
    smaller = replace(
        log.take(events),
        user=_renumbered(stay)[log.user[events]],
        item=_renumbered(kept)[log.item[events]],
        n_users=len(users),
        n_items=len(items),
        user_ids=[log.user_ids[place] for place in users],
        item_ids=[log.item_ids[place] for place in items],
        attributes={name: codes[stay] for name, codes in log.attributes.items()},
        values={name: numbers[stay] for name, numbers in log.values.items()},
        features=None if log.features is None else log.features[stay],
        texts=None if log.texts is None else [log.texts[place] for place in items],
    )
    return smaller, log.n_items - len(items)


def _renumbered(mask: Tensor) -> Tensor:
    """Count the true places before each place of a mask: the new number of what stays."""
    return mask.long().cumsum(0) - mask.long()


def _told(log: Interactions, attribute: str, counts: Tensor, least: int, items: int) -> list[str]:
    """Sentences on the users who were left out, with the reason; none where everybody stays."""
    surplus = {
        name: count - least
        for name, count in zip(log.classes[attribute], counts.tolist(), strict=True)
        if count > least
    }
    unknown = int((log.attributes[attribute] < 0).sum())
    said = []
    if surplus:
        each = ", ".join(f"{name}: {number:,}" for name, number in surplus.items())
        what = f"{counted(sum(surplus.values()), 'user')} of larger classes of {attribute} ({each})"
        said.append(f"{what} left out at random: {least:,} of each class stay (data.balance)")
    if unknown:
        said.append(f"{counted(unknown, 'user')} without a value of {attribute} left out (data.balance)")
    if items:
        said.append(f"{counted(items, 'item')} that nobody else touched left out (data.balance)")
    return said
