"""Rounds: erasers with a fleet, whose clients train on what they have before it is changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.limits.bounds import Amount, Many, PartShare, Rounds
from veilrec.eraser import AttributeEraser, Request
from veilrec.errors import BadInput

__all__ = ["Between", "Present", "RoundEraser"]


class Present(NamedTuple):
    """What one client has between two rounds of an eraser.

    Attributes:
        vectors: ``[n, width]`` of its users as the last round left them, float64.
        before: The same before the first round.
        request: What is asked, as far as it concerns them.
    """

    vectors: Tensor
    before: Tensor
    request: Request


class Between(NamedTuple):
    """What an eraser has done between two rounds.

    Attributes:
        vectors: Of each client, as they are now.
        up, down: Bytes that left all clients for it, and that came to them.
    """

    vectors: list[Tensor]
    up: int = 0
    down: int = 0


@dataclass(frozen=True)
class RoundEraser(AttributeEraser):
    """An eraser that takes rounds: clients train as they did, then it changes what they have.

    In each round some clients train on what they have, as the plan and the defences of the run say, and of
    their parts only the users' vectors move. What they would upload stays with them, for nothing else has
    changed, unless `items` move as well. Whose vector may not change is put back after each round.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        rounds: The most that are taken.
        share: The part of the clients that takes part in a round, drawn anew for each.
        epochs: How often a client goes through its own events in a round.
        recommend: How much training counts: a factor on the plan's rates; with 0 nobody trains.
        items: Whether what is shared moves as well, and goes up as in training.
        until: A round in which vectors move less than this, as a root of the mean square, is the last.
    """

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    rounds: Rounds = 50
    share: PartShare = 1.0
    epochs: Many = 1
    recommend: Amount = 1.0
    items: bool = False
    until: Amount = 1e-4

    @property
    def needs_silos(self) -> bool:
        """Whether it can do nothing for a client of one user."""
        return False

    @abstractmethod
    def between(self, clients: Sequence[Present], draws: Draws) -> Between:
        """Change what the clients of a round have, after they have trained."""

    def transform(self, vectors: Tensor, request: Request, draws: Draws) -> Tensor:
        """Refuse: there is nothing to train on.

        Raises:
            BadInput: Always.
        """
        name = type(self).__name__
        what = f"{name} trains users on what they touched, and vectors alone do not say that"
        raise BadInput("eraser", what, "erase a run, or choose one that needs vectors alone, such as AegisCS")
