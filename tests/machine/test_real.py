"""This machine, compared with psutil."""

from __future__ import annotations

import json

import psutil

from srhpm_plugin.machine.probe import probe


def test_this_machine_agrees_with_psutil():
    machine = probe()
    cpu, memory = machine.cpu, machine.memory
    assert cpu.logical == psutil.cpu_count()
    assert cpu.physical == (psutil.cpu_count(logical=False) or cpu.physical)
    assert 1 <= cpu.usable <= cpu.physical
    assert 1 <= cpu.performance <= cpu.physical
    assert cpu.name
    ram = psutil.virtual_memory()
    assert memory.total == ram.total
    assert 0 < memory.free <= memory.total
    limit = memory.total if memory.cgroup_limit is None else memory.cgroup_limit
    # Other programs take and give memory between the two looks.
    assert memory.free <= min(ram.available, limit) + memory.total // 10
    json.dumps(machine.to_json())
