"""CPU and memory limits of control groups, version 1, version 2 and both side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from .mounts import mounts
from .tree import Tree


@dataclass(frozen=True)
class Limits:
    """The tightest limits on the way from the process's group up to the root.

    Attributes:
        cpus: CPU time granted, in CPUs.
        memory: the smallest memory limit, bytes.
        memory_free: bytes left below the limits, page cache that can be dropped counted as free.
    """

    cpus: float | None = None
    memory: int | None = None
    memory_free: int | None = None


@dataclass(frozen=True)
class _Mount:
    version: int
    controllers: frozenset[str]  # version 1 only
    root: PurePosixPath  # the group that shows at `point`
    point: PurePosixPath


def read_limits(tree: Tree, ram: int) -> Limits:
    """The limits; memory limits of ``ram`` bytes or more count as none."""
    mounts = list(_mounts(tree))
    cpus: list[float] = []
    limits: list[int] = []
    left: list[int] = []
    for version, controller, path in _groups(tree):
        for folder in _folders(mounts, version, controller, path):
            if controller in ("cpu", ""):
                quota = _quota_v2(tree, folder) if version == 2 else _quota_v1(tree, folder)
                if quota is not None:
                    cpus.append(quota)
            if controller in ("memory", ""):
                for limit, free in _memory(tree, folder, version):
                    if limit < ram:
                        limits.append(limit)
                        left.append(free)
    return Limits(min(cpus, default=None), min(limits, default=None), min(left, default=None))


def _groups(tree: Tree) -> Iterator[tuple[int, str, str]]:
    """(version, controller, path) of the groups this process is in."""
    for line in (tree.text("proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            tree.note("/proc/self/cgroup holds a line that is not ID:CONTROLLERS:PATH")
            continue
        number, controllers, path = parts
        if number == "0" and not controllers:
            yield 2, "", path
        for controller in controllers.split(","):
            if controller in ("cpu", "memory"):
                yield 1, controller, path


def _mounts(tree: Tree) -> Iterator[_Mount]:
    for mount in mounts(tree):
        if mount.kind in ("cgroup", "cgroup2"):
            yield _Mount(
                2 if mount.kind == "cgroup2" else 1,
                frozenset(mount.options.split(",")),
                mount.root,
                mount.point,
            )


def _folders(mounts: list[_Mount], version: int, controller: str, path: str) -> Iterator[str]:
    """The group's folder and those above it, as far as they are mounted."""
    for mount in mounts:
        if mount.version != version or (version == 1 and controller not in mount.controllers):
            continue
        below = PurePosixPath()
        group = PurePosixPath(path)
        # Inside a container the path may lie outside of what is mounted; then the mount point
        # itself is the container's group.
        if ".." not in group.parts and group.is_relative_to(mount.root):
            below = group.relative_to(mount.root)
        folder = mount.point / below
        yield str(folder)
        while folder != mount.point:
            folder = folder.parent
            yield str(folder)
        return


def _quota_v2(tree: Tree, folder: str) -> float | None:
    text = tree.text(f"{folder}/cpu.max")
    if text is None or text.split()[:1] == ["max"]:
        return None
    match = re.fullmatch(r"([0-9]{1,15})(?:\s+([0-9]{1,15}))?", text)
    if not match or not int(match[1]) or not int(match[2] or 100000):
        tree.note(f"{folder}/cpu.max holds no quota")
        return None
    return int(match[1]) / int(match[2] or 100000)


def _quota_v1(tree: Tree, folder: str) -> float | None:
    quota = tree.integer(f"{folder}/cpu.cfs_quota_us")
    period = tree.integer(f"{folder}/cpu.cfs_period_us")
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return quota / period


def _memory(tree: Tree, folder: str, version: int) -> Iterator[tuple[int, int]]:
    """(limit, bytes left below it) for every limit of one group."""
    # memory.high does not kill, but above it the kernel drops model pages without end.
    limit_names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    usage = "memory.current" if version == 2 else "memory.usage_in_bytes"
    cache = "inactive_file" if version == 2 else "total_inactive_file"
    for name in limit_names:
        text = tree.text(f"{folder}/{name}")
        if text is None or text == "max":
            continue
        limit = tree.integer(f"{folder}/{name}")
        if limit is None or limit < 0:
            continue
        used = tree.integer(f"{folder}/{usage}")
        if used is None:
            tree.note(f"{folder} has a memory limit but does not say how much is used")
            used = 0
        droppable = min(_stat(tree, f"{folder}/memory.stat", cache), used)
        yield limit, max(0, limit - used + droppable)


def _stat(tree: Tree, name: str, key: str) -> int:
    for line in (tree.text(name) or "").splitlines():
        parts = line.split()
        if len(parts) == 2 and parts[0] == key and parts[1].isdecimal():
            return int(parts[1])
    return 0
