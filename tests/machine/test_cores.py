"""Performance and efficiency cores, hardware threads, affinity, odd topologies."""

from __future__ import annotations

import pytest

from srhpm_plugin.machine.cores import read_cores
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.tree import Tree, parse_list


def test_hybrid_by_intel_core_kinds(fake, lay_out):
    root = lay_out(
        fake.hybrid(),
        fake.ram(),
        {"sys/devices/cpu_core/cpus": "0-11\n", "sys/devices/cpu_atom/cpus": "12-19\n"},
    )
    cpu = probe(root=root).cpu
    assert (cpu.logical, cpu.physical, cpu.performance, cpu.usable) == (20, 14, 6, 14)
    assert cpu.smt
    assert cpu.name == "Test CPU"
    assert cpu.isa == ("avx2", "fma", "bmi2", "avx512f")
    assert probe(root=root).notes == ()


def test_low_power_cores_are_efficiency_cores_too(fake, lay_out):
    files, _ = fake.cores([(4, 2), (4, 1), (2, 1)])
    root = lay_out(
        files,
        fake.ram(),
        {
            "sys/devices/cpu_core/cpus": "0-7",
            "sys/devices/cpu_atom/cpus": "8-11",
            "sys/devices/cpu_lowpower/cpus": "12-13",
        },
    )
    cpu = probe(root=root).cpu
    assert (cpu.physical, cpu.performance) == (10, 4)


@pytest.mark.parametrize(
    ("name", "strong", "weak"),
    [("cpu_capacity", 1024, 590), ("cpufreq/cpuinfo_max_freq", 5_100_000, 3_800_000)],
)
def test_hybrid_by_capacity_or_clock(fake, lay_out, name, strong, weak):
    root = lay_out(fake.hybrid(), fake.ram(), fake.per_cpu(name, [strong] * 12 + [weak] * 8))
    cpu = probe(root=root).cpu
    assert (cpu.physical, cpu.performance) == (14, 6)


def test_capacity_outranks_clock(fake, lay_out):
    files, _ = fake.cores([(4, 1), (4, 1)])
    root = lay_out(
        files,
        fake.ram(),
        fake.per_cpu("cpu_capacity", [446] * 4 + [1024] * 4),
        fake.per_cpu("cpufreq/cpuinfo_max_freq", [2_000_000] * 8),
    )
    cores = read_cores(Tree(root))
    assert [min(core.cpus) for core in cores if core.performance] == [4, 5, 6, 7]


def test_favoured_cores_are_no_split(fake, lay_out):
    files, _ = fake.cores([(8, 2)])
    clocks = [5_000_000] * 12 + [5_200_000] * 4
    cpu = probe(
        root=lay_out(files, fake.ram(), fake.per_cpu("cpufreq/cpuinfo_max_freq", clocks))
    ).cpu
    assert cpu.performance == cpu.physical == 8


def test_half_a_comparison_is_none(fake, lay_out):
    clocks = fake.per_cpu("cpufreq/cpuinfo_max_freq", [5_100_000] * 12 + [3_800_000] * 8)
    del clocks["sys/devices/system/cpu/cpu19/cpufreq/cpuinfo_max_freq"]
    cpu = probe(root=lay_out(fake.hybrid(), fake.ram(), clocks)).cpu
    assert cpu.performance == cpu.physical == 14


def test_affinity_counts_cores_not_threads(fake, lay_out):
    status = {"proc/self/status": "Cpus_allowed_list:\t0-3,12\n"}
    cpu = probe(root=lay_out(fake.hybrid(), fake.ram(), status)).cpu
    assert (cpu.physical, cpu.usable) == (14, 3)


@pytest.mark.parametrize(
    ("allowed", "usable", "performance"),
    [("0-19", 14, 6), ("0-3,12-19", 10, 2), ("12-15", 4, 4), ("0-1", 1, 1)],
)
def test_affinity_counts_performance_cores(fake, lay_out, allowed, usable, performance):
    root = lay_out(
        fake.hybrid(),
        fake.ram(),
        {"sys/devices/cpu_core/cpus": "0-11\n", "sys/devices/cpu_atom/cpus": "12-19\n"},
        {"proc/self/status": f"Cpus_allowed_list:\t{allowed}\n"},
    )
    cpu = probe(root=root).cpu
    assert (cpu.physical, cpu.performance) == (14, 6), "the machine's, whatever is allowed"
    assert (cpu.usable, cpu.usable_performance) == (usable, performance)


def test_affinity_to_cpus_that_are_gone_is_ignored(fake, lay_out):
    status = {"proc/self/status": "Cpus_allowed_list:\t40-43\n"}
    machine = probe(root=lay_out(fake.hybrid(), fake.ram(), status))
    assert machine.cpu.usable == 14
    assert any("none of those online" in note for note in machine.notes)


def test_offline_threads_do_not_count(fake, lay_out):
    online = {"sys/devices/system/cpu/online": "0,2,4-19\n"}
    cpu = probe(root=lay_out(fake.hybrid(), fake.ram(), online)).cpu
    assert (cpu.logical, cpu.physical) == (18, 14)


def test_topology_from_cpuinfo_alone(fake, lay_out):
    cpuinfo = "".join(
        f"processor : {n}\nphysical id : {n // 4}\ncore id : {n % 2}\nflags : avx\n\n"
        for n in range(8)
    )
    cpu = probe(root=lay_out(fake.ram(), {"proc/cpuinfo": cpuinfo})).cpu
    # Two packages with two cores of two threads.
    assert (cpu.logical, cpu.physical, cpu.smt) == (8, 4, True)


def test_cpus_without_topology_are_cores(fake, lay_out):
    root = lay_out(fake.ram(), {"sys/devices/system/cpu/online": "0-3"})
    cpu = probe(root=root).cpu
    assert (cpu.logical, cpu.physical, cpu.smt) == (4, 4, False)


def test_sibling_lists_that_contradict_each_other(fake, lay_out):
    base = "sys/devices/system/cpu/cpu{}/topology/core_cpus_list"
    root = lay_out(
        {"sys/devices/system/cpu/online": "0-3"},
        {base.format(0): "0-1", base.format(1): "1-2", base.format(2): "2", base.format(3): "7"},
    )
    cores = read_cores(Tree(root))
    assert sorted(cpu for core in cores for cpu in core.cpus) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("", set()),
        (" 5 , 7-7 ", {5, 7}),
        ("3-1", None),
        ("0-99999999999", None),
        ("0-500000", None),
        ("a", None),
        ("-1", None),
        ("0--3", None),
    ],
)
def test_number_lists(text, numbers):
    assert parse_list(text) == (None if numbers is None else frozenset(numbers))
