"""Messages that wait: in their order, and no more of them in memory than may be."""

from __future__ import annotations

import queue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilrec.engine.ranks.inbox import Waiting
from veilrec.errors import Lost

MOST = 10


@given(st.lists(st.one_of(st.binary(max_size=15), st.none()), max_size=60))
def test_messages_come_in_their_order(steps: list[bytes | None]) -> None:
    """None takes a message, anything else adds one."""
    waiting, expected = Waiting(MOST), list[bytes]()
    for step in steps:
        if step is not None:
            waiting.put(step)
            expected.append(step)
        elif expected:
            assert waiting.get(1.0) == expected.pop(0)
        assert waiting.in_memory <= MOST
    assert [waiting.get(1.0) for _ in expected] == expected
    with pytest.raises(queue.Empty):
        waiting.get(0.01)
    assert (waiting.in_memory, waiting.in_file) == (0, 0)
    waiting.close()


def test_what_failed_comes_after_what_was_said_before() -> None:
    waiting = Waiting(MOST)
    for message in (b"x" * 8, b"y" * 8, Lost("rank 1 is gone")):
        waiting.put(message)
    assert waiting.in_file == 8
    assert [waiting.get(1.0) for _ in range(2)] == [b"x" * 8, b"y" * 8]
    assert isinstance(waiting.get(1.0), Lost)
    waiting.close()
