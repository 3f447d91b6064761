"""A world whose private values are canaries, and a spy that keeps every message and all that devices hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.canary import Canaries, Found
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Scope
from veilrec.engine import in_process
from veilrec.engine.local import LocalTask
from veilrec.engine.respond import Answer, Chunk, respond
from veilrec.interactions import Interactions
from veilrec.model import Recommender
from veilrec.node import phone
from veilrec.wire import codec
from veilrec.wire.uploads import Letter

USERS, ITEMS = 41, 97  # no other count in a result is the number of users
ALPHABET = "ghijklmnopqrstuvwxyz"  # no hex digit: no checksum looks like an id
MOMENT = 4_000_000_000_000_000_000  # times of 19 digits
PRIVATE_FILES = (  # of a run directory and of a device's store: for their owner only
    "users.safetensors",
    "world.safetensors",
    "ids.json",
    "per_user.csv",
    "transcript.safetensors",
    "checkpoint/state-*.safetensors",
    "own.safetensors",
    "node.json",
)


def word(what: str, k: int) -> str:
    """Sixteen letters that stand nowhere else."""
    return "".join(
        ALPHABET[byte % len(ALPHABET)] for byte in hashlib.sha256(f"{what} {k}".encode()).digest()[:16]
    )


def canary_world(users: int = USERS, items: int = ITEMS, events: int = 12) -> Interactions:
    """Ids, titles and class names are words, times and ratings numbers, that stand nowhere else."""
    keys = Keys.seed(3).fold("canaries")
    touched = [keys.fold(k).order(items)[: 6 + (k * 5) % events] for k in range(users)]
    count = sum(len(some) for some in touched)
    return Interactions.build(
        torch.repeat_interleave(torch.arange(users), torch.tensor([len(some) for some in touched])),
        torch.cat(touched),
        [word("user", k) for k in range(users)],
        [word("item", k) for k in range(items)],
        time=MOMENT + keys.fold("time").integers(1 << 40, count).cumsum(0),
        rating=1 + 4 * keys.fold("rating").uniform(count),
        attributes={"gender": torch.arange(users) * 7 % 5 % 2, "age": torch.arange(users) * 11 % 3},
        classes={"gender": words("gender", 2), "age": words("age", 3)},
        texts=words("title", items),
        features=keys.fold("features").normal(users, 4),
        feature_names=("height", "weight", "shoes", "hat"),
        name="aviary",
    )


def words(what: str, count: int) -> list[str]:
    """Some of them."""
    return [word(what, k) for k in range(count)]


def canaries_of(log: Interactions, *, classes: bool = True) -> Canaries:
    """All that is private in a world, but for its labels: those are numbers that anybody has.

    Names of `classes` may stand beside counts and averages of results, but never in a message or a log.
    """
    found = Canaries()
    for names in log.classes.values() if classes else ():
        found.texts("class", names)
    found.texts("user id", log.user_ids)
    found.texts("item id", log.item_ids)
    found.texts("title", log.texts or [])
    found.histories("history", [log.item[log.user == k] for k in range(log.n_users)])
    assert log.time is not None
    found.moments("time", log.time)
    assert log.rating is not None
    found.numbers("ratings", log.rating[None])
    assert log.features is not None
    found.numbers("features", log.features)
    return found


@dataclass
class Spy:
    """Stands beside every device: keeps its messages as bytes, and makes canaries of what it holds.

    Attributes:
        canaries: To which everything PRIVATE is added, before and after each round.
        messages: By sender and round, and what the server sends.
        spares: Clients whose private parts are no canaries, because they post them openly.
        apart: Names of posts that are kept as messages of their own, one for each owner and each time that
            they are posted or sent on; nothing of them is in the messages that carried them.
    """

    canaries: Canaries
    messages: dict[str, bytes] = field(default_factory=dict)
    spares: frozenset[int] = frozenset()
    apart: frozenset[str] = frozenset()
    posted: dict[int, set[int]] = field(default_factory=dict)

    def see(self, model: Recommender, sent: Letter, own: Params, answer: Answer) -> None:
        """One chunk of one round."""
        uploads, kept = answer.uploads, answer.kept
        cohort = uploads.cohort.tolist()
        number = len(self.messages)
        public = self._open(sent.posts, self._posters(sent.round), f"sent in letter {number}")
        letter: Message = {**sent.all, **{f"post/{n}": v for n, v in public.items()}}
        self.messages[f"letter {number}"] = codec.encode(letter)
        for k, client in enumerate(cohort):
            self.messages[f"upload {number} of client {client}"] = codec.encode(codec.one(uploads.values, k))
        posted = self._open(uploads.posts.values, uploads.posts.owner.tolist(), f"posted in {number}")
        self.posted.setdefault(sent.round, set()).update(uploads.posts.owner.tolist())
        for k, owner in enumerate(uploads.posts.owner.tolist()):
            post: Message = {name: value[k] for name, value in posted.items()}
            self.messages[f"post {number} of {owner}"] = codec.encode(post)
        private = set(model.names(Scope.PRIVATE))
        counted = [k for k, client in enumerate(cohort) if client not in self.spares]
        people = [cohort[k] for k in counted]
        for held in ([own] if sent.round == 0 else []) + [kept]:
            for name, value in held.items():
                if name.rpartition("/")[2] in private and value.is_floating_point():
                    self.canaries.numbers(f"{name} (message {number})", _flat(value)[counted], people)

    def _posters(self, round: int) -> list[int]:
        """Whose posts go out with the letter of a round: all that were posted in rounds before."""
        return sorted({owner for at, owners in self.posted.items() if at < round for owner in owners})

    def _open(self, posts: Params, owners: Iterable[int], when: str) -> Params:
        """Some posts less those that are kept apart."""
        for name in self.apart & posts.keys():
            for owner, value in zip(owners, posts[name], strict=True):
                self.messages[f"{name} {when} of {owner}"] = codec.encode({name: value})
        return {name: value for name, value in posts.items() if name not in self.apart}


def _flat(value: Tensor) -> Tensor:
    return value.detach().reshape(len(value), -1)


@contextmanager
def spying(canaries: Canaries, spares: Sequence[int] = (), apart: Sequence[str] = ()) -> Iterator[Spy]:
    """While it lasts, no device answers unseen."""
    spy = Spy(canaries, spares=frozenset(spares), apart=frozenset(apart))

    def seen(task: LocalTask, chunk: Chunk, *rest: Any) -> Answer:
        before = {name: value.clone() for name, value in chunk.kept.items()}
        answer = respond(task, chunk, *rest)
        spy.see(task.model, chunk.letter, before, answer)
        return answer

    with patch.object(in_process, "respond", seen), patch.object(phone, "respond", seen):
        yield spy


def few_bits(hit: Found, messages: Mapping[str, bytes]) -> bool:
    """Whether one number of no more than float32's 24 bits was met.

    Fresh weights and steps of a lattice have no more, so that some agree with a private number by chance.
    """
    word = messages[hit.place][hit.offset : hit.offset + 8]
    return hit.form == "raw" and int.from_bytes(word, "little") & ((1 << 29) - 1) == 0


def older(hit: Found, messages: Mapping[str, bytes]) -> bool:
    """Whether the first letter holds the very bytes that were met: it is older than all that devices did."""
    word = messages[hit.place][hit.offset : hit.offset + 8]
    return hit.form == "raw" and word in messages["letter 0"]


def outside(folder: Path) -> dict[str, bytes]:
    """Every file of a run directory that is not private; of those that are, nobody else may read any."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if any(fnmatch(name, pattern) for pattern in PRIVATE_FILES):
            assert path.stat().st_mode & 0o077 == 0, f"{name} is private, and others may read it"
        else:
            found[name] = path.read_bytes()
    return found
