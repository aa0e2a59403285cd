"""Machines laid out as folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Files = dict[str, str]
GIB = 1 << 30


class FakeMachines:
    """Writers of /sys and /proc files; every method returns a mapping of path to content."""

    @staticmethod
    def cores(kinds: list[tuple[int, int]]) -> tuple[Files, int]:
        """Topology files for ``(cores, threads per core)`` of each kind; CPUs count upwards."""
        files: Files = {}
        cpu = 0
        for n_cores, threads in kinds:
            for _ in range(n_cores):
                last = cpu + threads - 1
                siblings = str(cpu) if threads == 1 else f"{cpu}-{last}"
                for number in range(cpu, last + 1):
                    base = f"sys/devices/system/cpu/cpu{number}"
                    files[f"{base}/topology/core_cpus_list"] = siblings + "\n"
                cpu = last + 1
        files["sys/devices/system/cpu/online"] = f"0-{cpu - 1}\n"
        files["proc/self/status"] = f"Name:\tx\nCpus_allowed_list:\t0-{cpu - 1}\n"
        files["proc/cpuinfo"] = "".join(
            f"processor\t: {n}\nmodel name\t: Test CPU\nflags\t\t: fpu avx2 fma avx512f bmi2\n\n"
            for n in range(cpu)
        )
        return files, cpu

    @classmethod
    def hybrid(cls) -> Files:
        """Six performance cores with two threads each and eight efficiency cores."""
        return cls.cores([(6, 2), (8, 1)])[0]

    @staticmethod
    def per_cpu(name: str, values: list[int]) -> Files:
        """One number per CPU."""
        return {f"sys/devices/system/cpu/cpu{i}/{name}": f"{v}\n" for i, v in enumerate(values)}

    @staticmethod
    def ram(total: int = 64 * GIB, available: int = 48 * GIB, swap_used: int = 0) -> Files:
        """/proc/meminfo."""
        return {
            "proc/meminfo": f"MemTotal:       {total // 1024} kB\n"
            f"MemFree:         1234 kB\nMemAvailable:   {available // 1024} kB\n"
            f"SwapTotal:      8388608 kB\nSwapFree:       {8388608 - swap_used // 1024} kB\n"
            "HugePages_Total:       0\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        }

    @staticmethod
    def v2(group: str = "/", root: str = "/") -> Files:
        """A process in ``group`` of a unified hierarchy whose ``root`` is mounted."""
        return {
            "proc/self/cgroup": f"0::{group}\n",
            "proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
            f"30 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
        }

    @staticmethod
    def v1(group: str = "/", root: str = "/") -> Files:
        """A process in ``group`` of the version 1 controllers."""
        return {
            "proc/self/cgroup": f"9:memory:{group}\n4:cpu,cpuacct:{group}\n0::/\n",
            "proc/self/mountinfo": (
                f"32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                f"35 31 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            ),
        }


@pytest.fixture(scope="session")
def fake() -> type[FakeMachines]:
    """The writers."""
    return FakeMachines


@pytest.fixture
def lay_out(tmp_path: Path) -> Callable[..., Path]:
    """Writes mappings of path to content (text or bytes) below a folder, the last one wins."""

    def write(*layers: Mapping[str, str | bytes]) -> Path:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        for layer in layers:
            for name, content in layer.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write
