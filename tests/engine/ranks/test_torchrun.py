"""Ranks as people start them: ``torchrun -m veilrec run``, with processes that die, hang and are stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worlds import largest
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.base.tensors import read
from veilrec.cli import finished
from veilrec.result import Result

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="torchrun's signals as Linux has them"
)
DEADLINE = 240.0
RECIPE = """
seed = 0
[data]
name = "synthetic"
users = 40
items = 60
consent = 0.5
[model]
name = "FedNCF"
dim = 4
head = [6]
[plan]
rounds = {rounds}
batch = 16
chunk = 4
evaluate_every = {look}
timeout = 4
[record]
last = 2
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "short.toml").write_text(RECIPE.format(rounds=3, look=3), encoding="utf-8")
    (folder / "long.toml").write_text(RECIPE.format(rounds=150, look=25), encoding="utf-8")
    return folder


class Job:
    """One ``veilrec run``, with so many ranks, that is still at work."""

    def __init__(self, recipe: Path, out: Path, ranks: int, *more: str, restarts: int = 0) -> None:
        torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
        start = torchrun if ranks > 1 else []
        command = [sys.executable, *start, "-m", "veilrec", "run", str(recipe), "--out", str(out), *more]
        self.out, self.name = out, str(out)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def ended(self) -> tuple[int, list[str], str]:
        """Its exit code, the lines that say what is wrong, and all that it printed."""
        try:
            told, errors = self.process.communicate(timeout=DEADLINE)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        said = [line for line in errors.splitlines() if line.startswith("veilrec: error")]
        return self.process.returncode, said, told + errors

    def until(self, true: Callable[[], bool], pause: float = 0.01) -> None:
        """Wait until something is true of it."""
        until = time.monotonic() + DEADLINE
        while not true():
            assert self.process.poll() is None, self.ended()
            assert time.monotonic() < until
            time.sleep(pause)

    def rounds(self, n: int) -> None:
        """Wait until so many rounds are written down."""
        journal = self.out / "metrics.jsonl"
        self.until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= n)

    def writes(self, n: int) -> None:
        """Wait until it writes the state of a round."""
        self.until(lambda: any((self.out / "checkpoint").glob(f"*state-{n:06}*")), 0.001)

    def ranks(self) -> list[int]:
        """The processes of its ranks, the leader's first."""
        found = {}
        for status in Path("/proc").glob("[0-9]*/environ"):
            try:
                settings = dict(
                    entry.split(b"=", 1) for entry in status.read_bytes().split(b"\0") if b"=" in entry
                )
                line = (status.parent / "cmdline").read_bytes()
            except OSError:  # it has ended meanwhile, or is somebody else's
                continue
            if b"RANK" in settings and self.name.encode() in line:
                found[int(settings[b"RANK"])] = int(status.parent.name)
        return [found[rank] for rank in sorted(found)]


def run(recipe: Path, out: Path, ranks: int = 1, *more: str) -> Path:
    code, said, told = Job(recipe, out, ranks, "--quiet", *more).ended()
    assert (code, said) == (0, []), told
    return out


def held(out: Path) -> Params:
    """What devices keep, in the order of the clients."""
    devices = finished.reopen(out).federation.fleet.devices
    return devices.get(devices.clients().sort().values)


def assert_same(one: Path, other: Path, bound: float = 0.0) -> None:
    """The same weights of the server and of every device, metrics, traffic and ledger, and nothing left."""
    for a, b in (
        (read(one / "model.safetensors"), read(other / "model.safetensors")),
        (held(one), held(other)),
    ):
        assert a.keys() == b.keys()
        assert all(largest(a[name].double(), b[name].double()) <= bound for name in a)
    first, second = Result.load(one), Result.load(other)
    for name in ("utility", "selected", "rounds", "stopped", "traffic", "ledger", "fingerprint"):
        assert getattr(first, name) == getattr(second, name), name
    assert not list(other.rglob("*.tmp"))
    assert not (other / "lock").exists()


@pytest.mark.slow  # `test_ranks` has the same ends without torchrun
def test_two_ranks_leave_what_one_process_leaves(place: Path) -> None:
    """And print it once."""
    one = run(place / "short.toml", place / "one")
    code, said, told = Job(place / "short.toml", place / "two", 2).ended()
    assert (code, said) == (0, [])
    assert told.count("Everything is in") == 1
    assert_same(one, place / "two")


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    return run(place / "long.toml", place / "whole")


def fault(number: int, rank: int) -> Callable[[Job], None]:
    def act(job: Job) -> None:
        os.kill(job.ranks()[rank], number)

    return act


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_ends_the_others_by_its_name(place: Path, tmp_path: Path, rank: int) -> None:
    job = Job(place / "long.toml", tmp_path / "run", 2, "--quiet")
    job.rounds(5)
    fault(signal.SIGKILL, rank)(job)
    began = time.monotonic()
    code, said, told = job.ended()
    assert code == 1  # torchrun's own, which lists those of the ranks
    assert said == [f"veilrec: error: rank {rank} is gone: the connection to it has ended"]
    assert "exitcode  : 3" in told
    assert time.monotonic() - began < 15
    assert run(place / "long.toml", tmp_path / "run", 3, "--resume")


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_others_after_the_timeout(place: Path, tmp_path: Path) -> None:
    job = Job(place / "long.toml", tmp_path / "run", 2, "--quiet")
    job.rounds(5)
    stopped = job.ranks()[1]
    os.kill(stopped, signal.SIGSTOP)
    try:
        leader = Path(f"/proc/{job.ranks()[0]}")
        began = time.monotonic()
        while leader.exists() and b"Z" not in (leader / "stat").read_bytes().rpartition(b")")[2][:3]:
            assert time.monotonic() - began < 15
            time.sleep(0.05)
        assert time.monotonic() - began > 2
    finally:
        os.kill(stopped, signal.SIGKILL)  # torchrun would wait half a minute for it
    _, said, told = job.ended()
    assert said == ["veilrec: error: rank 1 gave no sign of life for 4 s"]
    assert "exitcode  : 3" in told


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(20))
def test_torchrun_starts_again_and_ends_at_the_same_numbers(
    place: Path, whole: Path, tmp_path: Path, trial: int
) -> None:
    """A rank that is killed at a random moment: in a round, in an evaluation, while a state is written."""
    moment, (where, rank, pause) = trial % 3, Keys.seed(trial).fold("kills").uniform(3).tolist()
    job = Job(place / "long.toml", tmp_path / "run", 2, "--quiet", restarts=3)
    job.until(lambda: len(job.ranks()) == 2)
    number = int(2 * rank)
    victim = job.ranks()[number]
    if moment == 0:
        job.rounds(1 + int(124 * where))
    elif moment == 1:
        job.rounds(25 * (1 + int(5 * where)) - 1)  # the round that comes is looked at
    else:
        job.writes(25 * int(2 * where))  # the state before the first round, or the first that is selected
    time.sleep(0.01 * pause if moment < 2 else 0.0)
    os.kill(victim, signal.SIGKILL)
    code, _, told = job.ended()
    assert code == 0, told
    killed = rf"\(exitcode: -9\) .*\(pid: {victim}\)|rank {number} is gone"  # whoever of both ended first
    assert re.search(killed, told), "nobody was killed at work"
    assert_same(whole, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whom", ["all", "torchrun"])
def test_signals_end_all_ranks_after_the_round(
    place: Path, whole: Path, tmp_path: Path, number: int, whom: str
) -> None:
    """Ctrl-C reaches all processes, a signal by its id torchrun alone; it goes on with other ranks."""
    job = Job(place / "long.toml", tmp_path / "run", 2, "--quiet")
    job.rounds(5)
    (os.killpg if whom == "all" else os.kill)(job.process.pid, number)
    began = time.monotonic()
    _, said, told = job.ended()
    assert time.monotonic() - began < 20
    assert len(said) == 1, told
    assert said[0].startswith("veilrec: error: stopped after round")
    assert_same(whole, run(place / "long.toml", tmp_path / "run", 3, "--resume"))


@pytest.mark.slow
def test_what_is_wrong_is_said_once_and_before_the_first_round(place: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    code, said, told = Job(place / "short.toml", tmp_path / "full", 2).ended()
    assert code == 1
    assert "exitcode  : 2" in told
    assert len(said) == 1
    assert "not empty" in said[0]
    _, said, _ = Job(place / "short.toml", tmp_path / "many", 2, "--set", "plan.chunk=256").ended()
    assert len(said) == 1
    assert "start 1, or" in said[0]


@pytest.mark.slow
def test_sweeps_and_attacks_work_over_ranks(place: Path, tmp_path: Path) -> None:
    more = "seeds = [0, 1]\n" + RECIPE.format(rounds=3, look=3).replace("seed = 0\n", "")
    more += '[threat]\nattributes = ["gender"]\nknown = 0.5\nresamples = 100\npermutations = 99\n'
    recipe = tmp_path / "sweep.toml"
    recipe.write_text(more.replace("dim = 4", 'dim = 4\nuser = "exposed"'), encoding="utf-8")
    one, two = run(recipe, tmp_path / "one"), run(recipe, tmp_path / "two", 2)
    index = json.loads((one / "index.json").read_text(encoding="utf-8"))
    assert index == json.loads((two / "index.json").read_text(encoding="utf-8"))
    for cell in index["cells"]:
        assert_same(one / cell["name"], two / cell["name"], 1e-6)
        a, b = Result.load(one / cell["name"]).privacy, Result.load(two / cell["name"]).privacy
        assert verdicts(a) == verdicts(b)


def verdicts(privacy: Any) -> Any:
    """What the audits of a run say, without the seconds that they took."""
    if isinstance(privacy, dict):
        return {name: verdicts(value) for name, value in privacy.items() if name != "seconds"}
    return [verdicts(value) for value in privacy] if isinstance(privacy, list) else privacy


@pytest.fixture
def spaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a pair of devices between them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    names = (f"veilrec-a-{os.getpid()}", f"veilrec-b-{os.getpid()}")
    commands = [
        *(f"ip netns add {name}" for name in names),
        f"ip link add veilrec-v0 netns {names[0]} type veth peer name veilrec-v1 netns {names[1]}",
        *(f"ip -n {name} addr add 10.213.7.{k + 1}/24 dev veilrec-v{k}" for k, name in enumerate(names)),
        *(
            f"ip -n {name} link set {what} up"
            for k, name in enumerate(names)
            for what in ("lo", f"veilrec-v{k}")
        ),
    ]
    try:
        for command in commands:
            if subprocess.run(command.split(), capture_output=True, timeout=20, check=False).returncode:
                pytest.skip("this machine allows no network namespaces")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20, check=False)


@pytest.mark.slow
def test_two_machines_meet_over_a_network(place: Path, tmp_path: Path, spaces: tuple[str, str]) -> None:
    """Two network namespaces, an agent in each, and a rendezvous over the pair of devices between them."""
    out, agents = tmp_path / "run", []
    for k, space in enumerate(spaces):
        command = ["ip", "netns", "exec", space, sys.executable, "-m", "torch.distributed.run"]
        command += ["--nnodes=2", "--nproc-per-node=1", f"--node-rank={k}"]
        command += ["--master-addr=10.213.7.1", "--master-port=29517"]
        command += ["-m", "veilrec", "run", str(place / "short.toml"), "--out", str(out), "--quiet"]
        settings = os.environ | {"GLOO_SOCKET_IFNAME": f"veilrec-v{k}"}
        agents.append(subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True))
    ends = [agent.communicate(timeout=DEADLINE)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], ends
    assert_same(run(place / "short.toml", tmp_path / "one"), out)


@pytest.mark.slow
def test_the_commands_of_the_compose_file_share_a_run(place: Path, tmp_path: Path) -> None:
    """Both of them on the loopback device, in place of a container each."""
    text = (Path(__file__).parents[3] / "docs" / "ranks" / "compose.yaml").read_text(encoding="utf-8")
    told = [json.loads(line.partition(":")[2]) for line in text.splitlines() if "command:" in line]
    assert len(told) == 2
    (tmp_path / "data").mkdir()
    shutil.copy(place / "short.toml", tmp_path / "data" / "recipe.toml")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agents = []
    for command in told:
        assert command[0] == "torchrun"
        rest = [part.replace("leader", "127.0.0.1").replace("29500", str(port)) for part in command[1:]]
        order = [sys.executable, "-m", "torch.distributed.run", *rest]
        agents.append(subprocess.Popen(order, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    ends = [agent.communicate(timeout=DEADLINE) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], ends
    assert b"Everything is in runs/shared" in ends[0][0]
    assert b"Everything" not in ends[1][0]
    assert_same(run(place / "short.toml", tmp_path / "one"), tmp_path / "runs" / "shared")


@pytest.mark.slow
def test_the_data_lies_on_the_first_machine_alone(place: Path, tmp_path: Path) -> None:
    """The second one has the recipe, and neither the log nor a folder for the run."""
    recipe = RECIPE.format(rounds=3, look=3).replace("synthetic", "csv").replace("consent = 0.5\n", "")
    recipe = recipe.replace("users = 40\nitems = 60", 'path = "log.csv"')
    draw = Keys.seed(0).integers(60, 40, 12).sort(1).values
    rows = [f"u{u},i{int(item)},{t}" for u, own in enumerate(draw) for t, item in enumerate(own.unique())]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.toml").write_text(recipe, encoding="utf-8")
    log = tmp_path / "first" / "log.csv"
    log.write_text("\n".join(["user,item,time", *rows]) + "\n", encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agents = []
    for rank, name in enumerate(("first", "second")):
        order = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}"]
        order += ["--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
        order += ["-m", "veilrec", "run", "recipe.toml", "--out", "run", "--quiet"]
        agents.append(subprocess.Popen(order, cwd=tmp_path / name, stderr=subprocess.PIPE, text=True))
    ends = [agent.communicate(timeout=DEADLINE)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], ends
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["recipe.toml"]
    one = run(tmp_path / "first" / "recipe.toml", tmp_path / "one")
    assert_same(one, tmp_path / "first" / "run", 1e-6)


@pytest.mark.slow
def test_the_tests_tell_one_end_from_another(place: Path, tmp_path: Path) -> None:
    """Planted: another seed is another end."""
    one = run(place / "short.toml", tmp_path / "one")
    other = run(place / "short.toml", tmp_path / "other", 1, "--seed", "1")
    with pytest.raises(AssertionError):
        assert_same(one, other)
    assert torch.is_tensor(next(iter(held(one).values())))
