"""Whatever the files hold, the probe answers and says what it could not use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.types import Machine

V2 = "sys/fs/cgroup"


def full(fake) -> dict[str, str]:
    return {
        **fake.hybrid(),
        **fake.ram(),
        **fake.v2("/a/b"),
        **fake.per_cpu("cpu_capacity", [1024] * 12 + [590] * 8),
        **fake.per_cpu("cpufreq/cpuinfo_max_freq", [5_000_000] * 12 + [3_800_000] * 8),
        "sys/devices/cpu_core/cpus": "0-11",
        "sys/devices/cpu_atom/cpus": "12-19",
        f"{V2}/a/b/cpu.max": "400000 100000",
        f"{V2}/a/memory.max": "8589934592",
        f"{V2}/a/memory.high": "max",
        f"{V2}/a/memory.current": "1024",
        f"{V2}/a/memory.stat": "inactive_file 512",
        "sys/devices/system/node/node0/cpulist": "0-19",
    }


def check(machine: Machine) -> None:
    """What holds for every answer."""
    cpu, memory = machine.cpu, machine.memory
    assert 1 <= cpu.performance <= cpu.physical <= cpu.logical
    assert 1 <= cpu.usable <= cpu.physical
    assert cpu.cgroup_limit is None or cpu.cgroup_limit > 0
    assert 0 <= memory.free <= memory.total
    assert memory.total > 0
    assert memory.swap_used >= 0
    assert memory.cgroup_limit is None or 0 <= memory.cgroup_limit < memory.total
    assert memory.huge_pages in ("always", "madvise", "never", "unknown")
    assert memory.numa_nodes >= 1
    assert all(note and "\n" not in note for note in machine.notes)


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("sys/devices/system/cpu/online", "all of them", "holds no list"),
        ("sys/devices/cpu_core/cpus", "0-", "holds no list"),
        ("sys/devices/system/cpu/cpu3/cpufreq/cpuinfo_max_freq", "fast", None),
        (f"{V2}/a/b/cpu.max", "lots", "cpu.max holds no quota"),
        (f"{V2}/a/b/cpu.max", "0 0", "cpu.max holds no quota"),
        (f"{V2}/a/memory.max", "8G", "holds no number"),
        (f"{V2}/a/memory.current", "?", "holds no number"),
        (f"{V2}/a/memory.stat", "inactive_file", None),
        ("proc/self/cgroup", "garbage", "ID:CONTROLLERS:PATH"),
        ("proc/self/mountinfo", "1 2 3\n4 - cgroup2\n - \n", None),
        ("proc/self/status", "Cpus_allowed_list:\tx", None),
        ("proc/meminfo", "MemTotal: much", "does not say how much memory"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "yes", "names no mode"),
        ("sys/devices/system/node/node0/cpulist", "0-x", "holds no list"),
        ("proc/cpuinfo", "processor : -\x00\xff", None),
    ],
)
def test_malformed_file(fake, lay_out, name, content, note):
    root = lay_out(full(fake), {name: content})
    machine = probe(root=root)
    check(machine)
    if note:
        assert any(note in line for line in machine.notes), machine.notes


def test_folder_in_place_of_a_file_is_a_note(fake, lay_out):
    files = full(fake)
    del files["proc/meminfo"]
    root = lay_out(files)
    (root / "proc/meminfo").mkdir()
    machine = probe(root=root)
    check(machine)
    assert any(note.startswith("/proc/meminfo cannot be read") for note in machine.notes)


def test_empty_machine(tmp_path):
    machine = probe(root=tmp_path)
    check(machine)
    assert any("counted by psutil" in note for note in machine.notes)


def test_every_file_missing_in_turn(fake, lay_out):
    files = full(fake)
    root = lay_out(files)
    for name in files:
        if "/cpu1" in name:
            continue
        path = root / name
        content = path.read_bytes()
        path.unlink()
        check(probe(root=root))
        path.write_bytes(content)


@pytest.fixture(scope="module")
def machine_root(fake, tmp_path_factory) -> Path:
    """A machine whose files the test below damages and mends."""
    root = tmp_path_factory.mktemp("machine")
    for name, content in full(fake).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_content(fake, machine_root, data):
    names = sorted(name for name in full(fake) if "/cpu1" not in name)
    content = st.one_of(
        st.binary(max_size=40),
        st.from_regex(rb"[0-9, \-]{0,30}", fullmatch=True),
        st.from_regex(rb"-?[0-9]{1,25}( [0-9]{1,25})?", fullmatch=True),
    )
    damage = data.draw(st.dictionaries(st.sampled_from(names), content, min_size=1, max_size=5))
    for name, garbage in damage.items():
        (machine_root / name).write_bytes(garbage)
    try:
        check(probe(root=machine_root))
    finally:
        for name in damage:
            (machine_root / name).write_text(full(fake)[name])
