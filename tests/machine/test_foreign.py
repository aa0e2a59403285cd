"""What Windows and macOS say, replayed."""

from __future__ import annotations

import struct

from srhpm_plugin.machine.foreign import darwin_cores, parse_windows_cores
from srhpm_plugin.machine.isa import darwin_isa, linux_isa
from srhpm_plugin.machine.probe import make_cpu
from srhpm_plugin.machine.tree import Tree


def record(mask: int, efficiency: int, group: int = 0, relation: int = 0) -> bytes:
    """PROCESSOR_RELATIONSHIP of a 64-bit Windows (winnt.h), one group."""
    body = struct.pack("<BB20xH", int(mask.bit_count() > 1), efficiency, 1)
    body += struct.pack("<QHHHH", mask, group, 0, 0, 0)
    return struct.pack("<II", relation, 8 + len(body)) + body


def test_windows_hybrid():
    data = b"".join(record(0b11 << 2 * i, 1) for i in range(6))
    data += b"".join(record(1 << 12 + i, 0) for i in range(8))
    cpu = make_cpu("x", parse_windows_cores(data), (), [])
    assert (cpu.logical, cpu.physical, cpu.performance, cpu.smt) == (20, 14, 6, True)


def test_windows_processor_groups_and_foreign_records():
    data = record(0b11, 0) + record(0b11, 0, relation=2) + record(0b11, 0, group=1)
    cores = parse_windows_cores(data)
    assert [sorted(core.cpus) for core in cores] == [[0, 1], [64, 65]]
    assert all(core.performance for core in cores)


def test_windows_damaged_records_end_the_reading():
    good = record(0b11, 0)
    for tail in (b"\0" * 40, good[:20], struct.pack("<II", 0, 1 << 30) + b"\0" * 40):
        assert len(parse_windows_cores(good + tail)) == 1
    assert parse_windows_cores(b"") == ()


def test_macos():
    values = {
        "hw.physicalcpu": "10",
        "hw.logicalcpu": "10",
        "hw.perflevel0.physicalcpu": "4",
        "hw.optional.neon": "1",
        "hw.optional.arm.FEAT_DotProd": "1",
        "hw.optional.arm.FEAT_I8MM": "0",
    }
    cpu = make_cpu("Apple M4", darwin_cores(values.get), darwin_isa(values.get), [])
    assert (cpu.logical, cpu.physical, cpu.performance, cpu.smt) == (10, 10, 4, False)
    assert cpu.isa == ("neon", "dotprod")


def test_macos_intel_and_silence():
    values = {"hw.physicalcpu": "4", "hw.logicalcpu": "8"}
    cpu = make_cpu("Intel", darwin_cores(values.get), (), [])
    assert (cpu.logical, cpu.physical, cpu.performance) == (8, 4, 4)
    assert darwin_cores({}.get) == ()


def test_arm_and_riscv_features(lay_out):
    arm = "processor : 0\nFeatures : fp asimd asimdhp asimddp i8mm sve bf16\n"
    assert linux_isa(Tree(lay_out({"proc/cpuinfo": arm}))) == (
        "neon",
        "fp16",
        "dotprod",
        "i8mm",
        "bf16",
        "sve",
    )
    riscv = "processor : 0\nisa : rv64imafdcv_zicsr\n"
    assert linux_isa(Tree(lay_out({"proc/cpuinfo": riscv}))) == ("rvv",)
    plain = "processor : 0\nisa : rv64imafdc_zvfh\n"
    assert linux_isa(Tree(lay_out({"proc/cpuinfo": plain}))) == ()
