"""What a rank tells the others, and says itself, when it fails."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from veilrec.engine.ranks import links
from veilrec.errors import BadInput, Elsewhere


class Told(links.Link):
    """A link that keeps what it was to tell."""

    def __init__(self, rank: int) -> None:
        self.rank, self.said = rank, list[tuple[str, int]]()

    def fail(self, message: str, code: int) -> None:
        self.said.append((message, code))


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """A process that ends hears no SIGTERM any more; this one goes on."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    links._waiting.clear()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_runs_out_on_any_rank_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    follower, leader = Told(1), Told(0)
    ended = links._parted(follower, error)
    assert isinstance(ended, Elsewhere)
    assert (ended.code, ended.quiet) == (3, True)
    ((message, code),) = follower.said
    assert message.startswith("out of memory; ")
    assert code == 3
    assert links._parted(leader, error) is error, "the leader says it by itself"
    assert leader.said == [(message, 3)]
    assert capsys.readouterr().err == "", "no traceback"


def test_a_bug_of_a_follower_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    follower = Told(1)
    assert str(links._parted(follower, ValueError("x"))) == "ValueError: x"
    assert follower.said == [("ValueError: x", 1)]
    assert "ValueError: x" in capsys.readouterr().err


def test_what_one_rank_finds_wrong_the_others_hear(capsys: pytest.CaptureFixture[str]) -> None:
    follower = Told(1)
    links._parted(follower, BadInput("plan.lr", "too high", "lower it"))
    assert follower.said == [("plan.lr: too high; lower it", 2)]
    assert capsys.readouterr().err == ""
