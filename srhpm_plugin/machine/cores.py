"""Physical cores on Linux: hardware threads of a core, performance and efficiency cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .tree import Tree, fields, parse_list

_CPUS = "sys/devices/system/cpu"

# A core counts as a performance core from this share of the strongest core's capacity (the
# scheduler's scale, 1024 at most) or top clock on. Among equal cores the clocks differ by a few
# percent (favoured cores); efficiency cores reach 0.3 to 0.75.
_CAPACITY_SHARE = 0.7
_CLOCK_SHARE = 0.8


@dataclass(frozen=True)
class Core:
    """A physical core: the logical CPUs on it and whether it is a performance core."""

    cpus: frozenset[int]
    performance: bool = True


def read_cores(tree: Tree) -> tuple[Core, ...]:
    """The cores that are online; empty when nothing says which there are."""
    processors = _cpuinfo(tree)
    online = tree.cpu_list(f"{_CPUS}/online")
    if not online:
        online = frozenset(
            int(name[3:]) for name in tree.children(_CPUS, r"cpu[0-9]{1,5}")
        ) or frozenset(processors)
    efficient = _efficient(tree, online)
    cores: list[Core] = []
    seen: set[int] = set()
    for cpu in sorted(online):
        # Lists that contradict each other must not count a CPU twice.
        cpus = (_siblings(tree, cpu, processors) & online) - seen
        if cpu in cpus:
            cores.append(Core(cpus, cpu not in efficient))
            seen |= cpus
    return tuple(cores)


def allowed_cpus(tree: Tree) -> frozenset[int] | None:
    """The CPUs this process may run on (affinity and cpusets), ``None`` when unknown."""
    for key, value in fields(tree.text("proc/self/status") or ""):
        if key == "Cpus_allowed_list":
            return parse_list(value)
    return None


def _cpuinfo(tree: Tree) -> dict[int, tuple[str, str]]:
    """CPU number -> (package, core id) as /proc/cpuinfo gives them, empty strings if not."""
    found: dict[int, tuple[str, str]] = {}
    cpu = -1
    for key, value in fields(tree.text("proc/cpuinfo") or ""):
        if key == "processor" and value.isdecimal():
            cpu = int(value)
            found[cpu] = ("", "")
        elif key == "physical id" and cpu in found:
            found[cpu] = (value, found[cpu][1])
        elif key == "core id" and cpu in found:
            found[cpu] = (found[cpu][0], value)
    return found


def _siblings(tree: Tree, cpu: int, processors: Mapping[int, tuple[str, str]]) -> frozenset[int]:
    for name in ("core_cpus_list", "thread_siblings_list"):
        listed = tree.cpu_list(f"{_CPUS}/cpu{cpu}/topology/{name}")
        if listed and cpu in listed:
            return listed
    place = processors.get(cpu)
    if place and place[1]:
        return frozenset(other for other, where in processors.items() if where == place)
    return frozenset({cpu})


def _efficient(tree: Tree, online: frozenset[int]) -> frozenset[int]:
    """The CPUs of efficiency cores among ``online``."""
    strong = tree.cpu_list("sys/devices/cpu_core/cpus")  # Intel hybrid: one PMU per kind of core
    weak: set[int] = set()
    for kind in ("cpu_atom", "cpu_lowpower"):
        weak |= tree.cpu_list(f"sys/devices/{kind}/cpus") or frozenset()
    if strong and weak and not strong & weak:
        return frozenset(weak & online)
    capacity = _ranks(tree, online, "cpu_capacity")
    if len(set(capacity.values())) > 1:
        return _below(capacity, _CAPACITY_SHARE)
    return _below(_ranks(tree, online, "cpufreq/cpuinfo_max_freq"), _CLOCK_SHARE)


def _ranks(tree: Tree, online: Iterable[int], name: str) -> dict[int, int]:
    """The figure of every CPU; nothing when one is missing, as half a comparison misleads."""
    ranks: dict[int, int] = {}
    for cpu in online:
        rank = tree.integer(f"{_CPUS}/cpu{cpu}/{name}")
        if rank is None or rank <= 0:
            return {}
        ranks[cpu] = rank
    return ranks


def _below(ranks: Mapping[int, int], share: float) -> frozenset[int]:
    top = max(ranks.values(), default=0)
    return frozenset(cpu for cpu, rank in ranks.items() if rank < share * top)
