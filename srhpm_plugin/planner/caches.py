"""Prompt cache and context checkpoints: how much of the memory left they may take.

Upstream takes up to 8 GiB of RAM for old prompts and 32 copies of the recurrent state per slot,
whatever the machine has.
"""

from __future__ import annotations

from dataclasses import replace

from .memory import CPU, checkpoint_bytes
from .room import Settled, ask_memory, reserve
from .units import MIB, size

# Shares of the RAM left when everything else is counted.
_CACHE_SHARE = 10
_CACHE_MOST_MIB = 2048
_CACHE_LEAST_MIB = 64  # less than one long prompt's KV is not worth keeping
_CHECKPOINT_SHARE = 4
_CHECKPOINTS_MOST = 8


def add_caches(settled: Settled) -> tuple[Settled, tuple[str, ...]]:
    """``settled`` with both sizes set, and the reasons."""
    plan = settled.plan
    ram = next(use for use in settled.memory if use.device == CPU)
    left = max(0, ram.free - ram.total - reserve(CPU, plan.machine))
    one = checkpoint_bytes(plan)
    checkpoints = min(_CHECKPOINTS_MOST, left // _CHECKPOINT_SHARE // one) if one else 0
    left -= checkpoints * one
    mib = min(_CACHE_MOST_MIB, left // _CACHE_SHARE // MIB)
    mib = mib if mib >= _CACHE_LEAST_MIB else 0
    reasons = [
        f"{mib} MiB of the RAM left keep old prompts"
        if mib
        else "no cache of old prompts: the RAM left is too small for one"
    ]
    if one:
        reasons.append(
            f"{checkpoints} context checkpoints of {size(one)}"
            if checkpoints
            else f"no context checkpoints: one takes {size(one)}; a changed prompt is read anew"
        )
    plan = replace(plan, cache_ram_mib=mib, ctx_checkpoints=checkpoints)
    return replace(settled, plan=plan, memory=ask_memory(plan)), tuple(reasons)
