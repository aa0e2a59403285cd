"""The best set of layers for the GPUs: pure functions.

A knapsack with neighbours: each place (a layer, at last the head) saves some time on a GPU and
takes some of its memory, and each change of side between neighbours costs time. Searched place by
place; of all ways to get somewhere only those are kept that no other beats in time and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

CPU = -1

# Ways kept per device and side. Below that the search is exact. Above, of the ways that differ in
# memory by less than this part of the device's only the fastest is kept.
MOST_WAYS = 256


@dataclass(frozen=True)
class Place:
    """A layer or the head.

    Attributes:
        gain: milliseconds that a pass is shorter with it on a GPU.
        nbytes: what it takes there.
    """

    gain: float
    nbytes: int


@dataclass(frozen=True)
class LayerSet:
    """Where each place lies.

    Attributes:
        devices: index of a GPU, or :data:`CPU`.
        gain: milliseconds that a pass is shorter than with all on the CPU.
        bound: no set gains more. With several GPUs those sets count that give them the layers in
            their order, one after the other.
    """

    devices: tuple[int, ...]
    gain: float
    bound: float


# The devices of the places so far, as a linked list.
_Trail: TypeAlias = "tuple[_Trail, int] | None"
# Bytes used on the device, milliseconds gained.
_Way = tuple[int, float, _Trail]


def best_set(places: Sequence[Place], rooms: Sequence[int], crossing: float) -> LayerSet:
    """The set that gains most.

    Args:
        rooms: bytes free for places on each GPU.
        crossing: milliseconds that each change of side costs a pass. Before the first place comes
            the CPU; the logits go back to it from wherever the head is.
    """
    ways: dict[tuple[int, bool], list[_Way]] = {(0, False): [(0, 0.0, None)]}
    exact = True
    for place in places:
        new: dict[tuple[int, bool], list[_Way]] = {}
        for (device, on), known in ways.items():
            for used, gain, trail in known:
                off = gain - crossing if on else gain
                new.setdefault((device, False), []).append((used, off, (trail, CPU)))
                for to in range(device, len(rooms)):
                    total = place.nbytes + (used if to == device else 0)
                    if total <= rooms[to]:
                        there = gain + place.gain - (0 if on and to == device else crossing)
                        new.setdefault((to, True), []).append((total, there, (trail, to)))
        ways = {}
        for key, known in new.items():
            kept = _unbeaten(known)
            if len(kept) > MOST_WAYS:
                kept, exact = _thinned(kept, rooms[key[0]]), False
            ways[key] = kept
    _, gain, trail = max((way for known in ways.values() for way in known), key=lambda w: w[1])
    bound = gain if exact else max(gain, bound_of(places, sum(rooms), crossing))
    return LayerSet(_devices(trail), gain, bound)


def gain_of(devices: Sequence[int], places: Sequence[Place], crossing: float) -> float:
    """Milliseconds that a pass is shorter with places on these devices."""
    gain, before = 0.0, CPU
    for device, place in zip(devices, places, strict=True):
        gain += place.gain if device != CPU else 0.0
        gain -= crossing if device != before else 0.0
        before = device
    return gain


def bound_of(places: Sequence[Place], room: int, crossing: float) -> float:
    """No set in ``room`` bytes gains more: the best places by gain per byte, the last one in part,
    with the one crossing that any set has."""
    gain = 0.0
    for place in sorted(places, key=lambda p: p.gain / max(p.nbytes, 1), reverse=True):
        share = min(1.0, room / place.nbytes) if place.nbytes else 1.0
        gain += share * max(0.0, place.gain)
        room = max(0, room - place.nbytes)
    return max(0.0, gain - crossing)


def _unbeaten(ways: list[_Way]) -> list[_Way]:
    """By bytes, each gaining more than all that take less."""
    kept: list[_Way] = []
    for way in sorted(ways, key=lambda w: (w[0], -w[1])):
        if not kept or way[1] > kept[-1][1]:
            kept.append(way)
    return kept


def _thinned(ways: list[_Way], room: int) -> list[_Way]:
    """The last, so the fastest, of those in each of :data:`MOST_WAYS` equal parts of the room."""
    parts = {way[0] * MOST_WAYS // (room + 1): way for way in ways}
    return list(parts.values())


def _devices(trail: _Trail) -> tuple[int, ...]:
    found: list[int] = []
    while trail is not None:
        trail, device = trail
        found.append(device)
    return tuple(reversed(found))
