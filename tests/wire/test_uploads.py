"""Posts: the latest of each owner, in the order of the owners."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from veilrec.wire.uploads import Posts

owners = st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True)


def posts(who: list[int], number: int) -> Posts:
    owner = torch.tensor(who, dtype=torch.int64)
    return Posts(owner, {"vector": owner[:, None] * 100.0 + number, "label": owner + number})


@given(st.lists(owners, max_size=5))
def test_later_posts_replace_earlier_ones(rounds: list[list[int]]) -> None:
    board, latest = Posts.none(), dict[int, int]()
    for number, who in enumerate(rounds):
        board = board.merge(posts(who, number))
        latest |= dict.fromkeys(who, number)
    assert board.owner.tolist() == sorted(latest)
    if latest:
        assert board.values["vector"][:, 0].tolist() == [100.0 * k + latest[k] for k in sorted(latest)]
        assert board.values["label"].tolist() == [k + latest[k] for k in sorted(latest)]


def test_merging_nothing_changes_nothing() -> None:
    board = posts([3, 1], 0)
    assert board.merge(Posts.none()) is board
    assert Posts.none().merge(Posts.none()).owner.tolist() == []
