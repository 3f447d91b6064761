"""What a machine says of its memory."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from veilrec.base.limits import machine

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux says")
FREE = {"/proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n"}
GROUPS = {
    "a group of its own": {
        "/proc/self/cgroup": "0::/run/7\n",
        "/sys/fs/cgroup/run/7/memory.max": "3000000\n",
        "/sys/fs/cgroup/run/7/memory.current": "1500000\n",
        "/sys/fs/cgroup/run/7/memory.stat": "anon 5\ninactive_file 500000\n",
    },
    "one around it": {
        "/proc/self/cgroup": "0::/run/7\n",
        "/sys/fs/cgroup/run/7/memory.max": "max\n",
        "/sys/fs/cgroup/run/7/memory.current": "5\n",
        "/sys/fs/cgroup/run/memory.max": "2000000\n",
        "/sys/fs/cgroup/run/memory.current": "0\n",
    },
    "of the old kind": {
        "/proc/self/cgroup": "9:name=systemd:/\n4:memory:/x\n",
        "/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "2000000\n",
        "/sys/fs/cgroup/memory/x/memory.usage_in_bytes": "0\n",
    },
    "as a container sees it": {
        "/proc/self/cgroup": "0::/not/here\n",
        "/sys/fs/cgroup/memory.max": "2000000\n",
        "/sys/fs/cgroup/memory.current": "0\n",
    },
}


def says(monkeypatch: pytest.MonkeyPatch, files: dict[str, str], limit: int | None = None) -> None:
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(machine, "_text", lambda path: files.get(str(path), ""))
    monkeypatch.setattr(
        resource,
        "getrlimit",
        lambda kind: (limit if limit and kind == resource.RLIMIT_AS else unlimited, unlimited),
    )


@pytest.mark.parametrize("kind", GROUPS)
def test_a_control_group_is_seen(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    says(monkeypatch, FREE | GROUPS[kind])
    assert machine.room() == (2_000_000, "the limit of the control group")


def test_a_group_without_a_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"/sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}
    says(monkeypatch, FREE | GROUPS["of the old kind"] | old)
    assert machine.room() == (4000 << 10, "the memory that is free")


def test_a_limit_on_addresses_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, {**FREE, "/proc/self/status": "VmSize:   1000 kB\nVmHWM:  700 kB\n"}, limit=3000 << 10)
    assert machine.room() == (2000 << 10, "the limit on this process (ulimit -v)")
    assert machine.peak() == 700 << 10


def test_where_nothing_is_said_half_of_what_is_built_in_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, {})
    assert machine.room().limit == "half of this machine's memory"
    assert machine.held() == 0


def test_this_machine(tmp_path: Path) -> None:
    assert 0 < machine.held() <= machine.peak()
    assert 0 < machine.room().bytes < 1 << 60
    assert machine.free_disk(tmp_path / "not" / "there") == machine.free_disk(tmp_path) > 0
