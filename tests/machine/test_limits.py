"""Control group limits, RAM, huge pages, NUMA."""

from __future__ import annotations

import pytest

from srhpm_plugin.machine.cgroup import read_limits
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.tree import Tree

GIB = 1 << 30
V2 = "sys/fs/cgroup"
V1_MEMORY, V1_CPU = "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct"


def v2_memory(folder: str, limit: str, used: int, cache: int, name: str = "memory.max"):
    return {
        f"{folder}/{name}": limit + "\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {cache}\nactive_file 7\n",
    }


def test_no_limits(fake, lay_out):
    machine = probe(root=lay_out(fake.hybrid(), fake.ram(), fake.v2()))
    assert machine.cpu.cgroup_limit is None
    assert machine.memory.cgroup_limit is None
    assert (machine.memory.total, machine.memory.free) == (64 * GIB, 48 * GIB)
    assert machine.memory.huge_pages == "madvise"
    assert machine.notes == ()


def test_v2_quota_of_one_and_a_half_cpus_leaves_one_thread(fake, lay_out):
    quota = {f"{V2}/cpu.max": "150000 100000\n"}
    cpu = probe(root=lay_out(fake.hybrid(), fake.ram(), fake.v2(), quota)).cpu
    assert cpu.cgroup_limit == 1.5
    assert cpu.usable == 1
    assert cpu.physical == 14


@pytest.mark.parametrize(
    ("quota", "usable"), [("20000 100000", 1), ("800000 100000", 8), ("9900000 100000", 14)]
)
def test_quota_and_usable_cores(fake, lay_out, quota, usable):
    root = lay_out(fake.hybrid(), fake.ram(), fake.v2(), {f"{V2}/cpu.max": quota})
    assert probe(root=root).cpu.usable == usable


def test_v2_nested_groups_take_the_smallest(fake, lay_out):
    root = lay_out(
        fake.hybrid(),
        fake.ram(),
        fake.v2("/user.slice/app.scope"),
        v2_memory(f"{V2}/user.slice/app.scope", "max", GIB, 0),
        v2_memory(f"{V2}/user.slice", str(16 * GIB), 10 * GIB, 3 * GIB),
        {
            f"{V2}/user.slice/app.scope/cpu.max": "600000 100000",
            f"{V2}/user.slice/cpu.max": "400000 100000",
        },
    )
    machine = probe(root=root)
    assert machine.cpu.cgroup_limit == 4.0
    assert machine.memory.cgroup_limit == 16 * GIB
    assert machine.memory.free == 9 * GIB  # limit - used + inactive page cache
    assert machine.memory.total == 64 * GIB


def test_memory_high_is_a_limit(fake, lay_out):
    root = lay_out(
        fake.ram(),
        fake.v2("/a"),
        v2_memory(f"{V2}/a", str(8 * GIB), GIB, 0),
        v2_memory(f"{V2}/a", str(4 * GIB), GIB, 0, "memory.high"),
    )
    memory = probe(root=root).memory
    assert (memory.cgroup_limit, memory.free) == (4 * GIB, 3 * GIB)


def test_free_ram_below_the_limit_wins(fake, lay_out):
    root = lay_out(
        fake.ram(available=2 * GIB), fake.v2("/a"), v2_memory(f"{V2}/a", str(8 * GIB), 0, 0)
    )
    assert probe(root=root).memory.free == 2 * GIB


def test_container_sees_its_own_group_as_root(fake, lay_out):
    # Without a cgroup namespace the path is the host's and the mount shows only that group.
    root = lay_out(
        fake.ram(),
        fake.v2("/docker/abc", root="/docker/abc"),
        v2_memory(V2, str(2 * GIB), GIB // 2, 0),
    )
    assert probe(root=root).memory.free == 3 * GIB // 2


@pytest.mark.parametrize("group", ["/../../elsewhere", "/other/place"])
def test_path_outside_of_the_mount(fake, lay_out, group):
    root = lay_out(fake.ram(), fake.v2(group, "/docker/abc"), v2_memory(V2, str(GIB), 0, 0))
    assert probe(root=root).memory.cgroup_limit == GIB


def test_v1_container(fake, lay_out):
    root = lay_out(
        fake.hybrid(),
        fake.ram(),
        fake.v1("/docker/abc"),
        {
            f"{V1_CPU}/docker/abc/cpu.cfs_quota_us": "250000\n",
            f"{V1_CPU}/docker/abc/cpu.cfs_period_us": "100000\n",
            f"{V1_CPU}/cpu.cfs_quota_us": "-1\n",
            f"{V1_CPU}/cpu.cfs_period_us": "100000\n",
            f"{V1_MEMORY}/docker/abc/memory.limit_in_bytes": f"{6 * GIB}\n",
            f"{V1_MEMORY}/docker/abc/memory.usage_in_bytes": f"{3 * GIB}\n",
            f"{V1_MEMORY}/docker/abc/memory.stat": f"cache 1\ntotal_inactive_file {GIB}\n",
            f"{V1_MEMORY}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{V1_MEMORY}/memory.usage_in_bytes": f"{50 * GIB}\n",
        },
    )
    machine = probe(root=root)
    assert machine.cpu.cgroup_limit == 2.5
    assert machine.cpu.usable == 2
    assert (machine.memory.cgroup_limit, machine.memory.free) == (6 * GIB, 4 * GIB)
    assert machine.notes == ()


def test_cache_cannot_exceed_use_and_nothing_is_below_zero(fake, lay_out):
    root = lay_out(fake.ram(), fake.v2("/a"), v2_memory(f"{V2}/a", str(GIB), 2 * GIB, 9 * GIB))
    assert probe(root=root).memory.free == GIB
    root = lay_out(v2_memory(f"{V2}/a", str(GIB), 3 * GIB, 0))
    assert probe(root=root).memory.free == 0


def test_mount_point_with_a_blank(fake, lay_out):
    mountinfo = r"30 23 0:26 / /sys/fs/control\040groups rw - cgroup2 cgroup2 rw" + "\n"
    root = lay_out(
        fake.ram(),
        {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo},
        {"sys/fs/control groups/cpu.max": "200000 100000"},
    )
    assert read_limits(Tree(root), GIB).cpus == 2.0


def test_swap_and_old_kernels(fake, lay_out):
    memory = probe(root=lay_out(fake.ram(swap_used=3 * GIB))).memory
    assert memory.swap_used == 3 * GIB
    old = "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 30 kB\n"
    memory = probe(root=lay_out({"proc/meminfo": old})).memory
    assert (memory.total, memory.free, memory.swap_used) == (1000 * 1024, 150 * 1024, 0)


@pytest.mark.parametrize("mode", ["always", "madvise", "never"])
def test_huge_page_modes(fake, lay_out, mode):
    text = " ".join(f"[{m}]" if m == mode else m for m in ("always", "madvise", "never"))
    thp = {"sys/kernel/mm/transparent_hugepage/enabled": text}
    assert probe(root=lay_out(fake.ram(), thp)).memory.huge_pages == mode


def test_numa_nodes_with_cpus_count(fake, lay_out):
    files, _ = fake.cores([(8, 1)])
    nodes = {
        "sys/devices/system/node/node0/cpulist": "0-3\n",
        "sys/devices/system/node/node1/cpulist": "4-7\n",
        "sys/devices/system/node/node2/cpulist": "\n",  # memory of a GPU
        "sys/devices/system/node/online": "0-2\n",
    }
    assert probe(root=lay_out(files, fake.ram(), nodes)).memory.numa_nodes == 2
    assert probe(root=lay_out(files, fake.ram())).memory.numa_nodes == 2


def test_no_numa_information_is_one_node(fake, lay_out):
    assert probe(root=lay_out(fake.ram())).memory.numa_nodes == 1
