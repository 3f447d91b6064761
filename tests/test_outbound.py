"""Nothing calls anybody: no run and no command opens a connection, asks for an address or waits for one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.canary_world import canaries_of, canary_world, outside
from veilrec.attacks.attribute import AttributeInference
from veilrec.base import tensors
from veilrec.base.keys import Keys
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF

ROOT = Path(__file__).parents[1]
EVENTS = ("connect", "connect_ex", "sendto", "sendmsg", "bind")
NAMES = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "create_connection")
GUARD = '''"""Comes before anything else: writes down every use of the network, and refuses it."""

import logging
import os
import sys

WATCHED = {"socket." + name for name in os.environ["WATCHED"].split()}


def watch(event, arguments):
    if event in WATCHED:
        with open(os.environ["GUARD"], "a") as file:
            file.write(event + "\\n")
        raise ConnectionRefusedError(event)


sys.addaudithook(watch)
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
'''
CHILD = """
import subprocess, sys
code = "import http.client; http.client.HTTPConnection('127.0.0.1', 9).connect()"
subprocess.run([sys.executable, "-c", code], check=True)
"""
RECIPE = """
[data]
name = "csv"
path = "events.csv"
attributes = "users.csv"
titles = "items.csv"
consent = 0.5

[model]
name = "FedNCF"
dim = 8
head = [8]

[plan]
rounds = 2
evaluate_every = 1

[record]
last = 1
"""


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was tried in this process; each attempt fails."""
    tried: list[str] = []

    def refuse(name: str) -> None:
        tried.append(name)
        raise ConnectionRefusedError(name)

    for name in EVENTS:
        monkeypatch.setattr(socket.socket, name, lambda *_, name=name: refuse(name))
    for name in NAMES:
        monkeypatch.setattr(socket, name, lambda *_, name=name, **__: refuse(name))
    return tried


class Calling(Defence):
    """Tells somebody that it was used."""

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(b"used", ("127.0.0.1", 9))
        return clients


def experiment(defence: Defence) -> Experiment:
    return Experiment(
        canary_world(),
        partial(FedMF, dim=4),
        defence=defence,
        plan=Plan(rounds=2, evaluate_every=1),
        attacks={"guess": AttributeInference(classifiers=("majority",))},
        threat=Threat(by_part=False, resamples=100, permutations=99),
    )


def test_an_experiment_calls_nobody(refused: list[str], tmp_path: Path) -> None:
    experiment(Defence()).run(tmp_path / "run")
    assert refused == []


def test_planted_a_call_from_an_experiment_is_noticed(refused: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefusedError):
        experiment(Calling()).run(tmp_path / "run")
    assert refused == ["sendto"]


def guarded(place: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[bytes], str]:
    """Python under guard in a process of its own, and what it tried."""
    (place / "guard").mkdir()
    (place / "guard" / "sitecustomize.py").write_text(GUARD)
    path = os.pathsep.join([str(place / "guard"), str(ROOT)])
    hidden = {"HOME": str(place), "VEILREC_HOME": str(place / "home"), "GUARD": str(place / "tried")}
    hidden["WATCHED"] = " ".join([*EVENTS, *NAMES])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, **hidden, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=240,
        check=False,
    )
    tried = place / "tried"
    return done, tried.read_text() if tried.exists() else ""


def write_world(log: Interactions, place: Path) -> None:
    """The world as a person would bring it: three files."""
    assert log.time is not None
    assert log.rating is not None
    assert log.texts is not None
    events = zip(log.user.tolist(), log.item.tolist(), log.rating.tolist(), log.time.tolist(), strict=True)
    rows = [f"{log.user_ids[u]},{log.item_ids[i]},{r},{t}" for u, i, r, t in events]
    (place / "events.csv").write_text("\n".join(["user,item,rating,timestamp", *rows]) + "\n")
    said = {name: [names[k] for k in log.attributes[name].tolist()] for name, names in log.classes.items()}
    rows = [",".join([log.user_ids[k], *(said[name][k] for name in said)]) for k in range(log.n_users)]
    (place / "users.csv").write_text("\n".join([",".join(["user", *said]), *rows]) + "\n")
    rows = [f"{log.item_ids[k]},{log.texts[k]}" for k in range(log.n_items)]
    (place / "items.csv").write_text("\n".join(["item,title", *rows]) + "\n")


@pytest.mark.slow  # an experiment in this process is watched above
def test_the_command_line_calls_nobody_and_tells_nothing(tmp_path: Path) -> None:
    """One process, watched in both ways: each costs an import of torch."""
    log = canary_world()
    write_world(log, tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    done, tried = guarded(tmp_path, "-m", "veilrec", "run", "recipe.toml", "--out", "run")
    assert done.returncode == 0, done.stderr.decode()
    assert tried == ""
    canaries = canaries_of(log)
    for name, value in tensors.read(tmp_path / "run" / "users.safetensors").items():
        if value.is_floating_point():
            canaries.numbers(name, value.flatten(1))
    assert canaries.find((tmp_path / "run" / "users.safetensors").read_bytes())
    documents = {**outside(tmp_path / "run"), "stdout": done.stdout, "stderr": done.stderr}
    assert b"ndcg@10" in done.stderr
    assert b"Everything is in run" in done.stdout
    found = canaries.scan(documents)
    assert {(hit.place, hit.canary.split()[0]) for hit in found} == {("result.json", "class")}  # with counts


@pytest.mark.parametrize(
    "code",
    [
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "import socket; socket.getaddrinfo('example.org', 80)",
        CHILD,
    ],
    ids=["address", "datagram", "name", "child"],
)
def test_planted_calls_are_noticed(code: str, tmp_path: Path) -> None:
    done, tried = guarded(tmp_path, "-c", code)
    assert done.returncode != 0
    assert tried.startswith("socket.")
