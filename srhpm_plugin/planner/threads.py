"""Compute threads: the built-in step."""

from __future__ import annotations

from ..machine.types import Machine
from ..plan import HostRequest


def choose_threads(request: HostRequest, machine: Machine) -> tuple[int, str]:
    """One thread per usable performance core, for single tokens and batches alike.

    A second thread on a core adds no memory bandwidth, and with slower cores in the team every
    matrix product waits for the slowest. A verify pass counts as a batch for the server, so both
    of its thread counts must be this one.
    """
    cpu = machine.cpu
    if request.threads is not None:
        why = f"{request.threads} threads as asked"
        if request.threads > cpu.logical:
            why += f", more than the {cpu.logical} hardware threads of this machine"
        return request.threads, why
    threads = max(1, cpu.usable_performance)
    others = "the others would hold them up"
    if cpu.usable < cpu.physical:
        limit = f"a limit of {cpu.cgroup_limit:g} CPUs" if cpu.cgroup_limit else "the CPU affinity"
        why = f"{threads} threads: {limit} leaves {cpu.usable} of {cpu.physical} cores"
        if threads < cpu.usable:
            why += f", {threads} of them performance cores ({others})"
    else:
        why = f"{threads} threads: one per performance core"
        if threads < cpu.physical:
            why += f" ({threads} of {cpu.physical}; {others})"
    return threads, why
