"""The search for the best set of layers, against all sets there are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srhpm_plugin.planner import layersets
from srhpm_plugin.planner.layersets import CPU, Place, best_set, bound_of, gain_of

places_of = st.lists(st.builds(Place, st.floats(0, 9), st.integers(0, 50)), min_size=1, max_size=7)


def fits(devices: Sequence[int], places: Sequence[Place], rooms: Sequence[int]) -> bool:
    used = [0] * len(rooms)
    for device, place in zip(devices, places, strict=True):
        if device != CPU:
            used[device] += place.nbytes
    return all(u <= room for u, room in zip(used, rooms, strict=True))


def in_order(devices: Sequence[int]) -> bool:
    on_gpus = [d for d in devices if d != CPU]
    return on_gpus == sorted(on_gpus)


@settings(max_examples=200, deadline=None)
@given(places_of, st.lists(st.integers(0, 120), min_size=1, max_size=2), st.floats(0, 3))
def test_no_set_is_better(places: list[Place], rooms: list[int], crossing: float) -> None:
    found = best_set(places, rooms, crossing)
    assert fits(found.devices, places, rooms)
    assert in_order(found.devices)
    assert found.gain == pytest.approx(gain_of(found.devices, places, crossing))
    every = itertools.product(range(CPU, len(rooms)), repeat=len(places))
    best = max(
        gain_of(d, places, crossing) for d in every if in_order(d) and fits(d, places, rooms)
    )
    assert found.gain == pytest.approx(best)
    assert found.bound >= best - 1e-9
    assert best <= bound_of(places, sum(rooms), crossing) + 1e-9


def test_like_layers_stay_together() -> None:
    """One crossing, to the end: what -ngl gives."""
    places = [Place(5.0, 100)] * 12
    found = best_set(places, [450], 0.05)
    assert found.devices == (CPU,) * 8 + (0,) * 4
    assert found.gain == found.bound == pytest.approx(20 - 0.05)


def test_a_crossing_must_pay() -> None:
    """A run that saves a little more, but has an end."""
    places = [Place(5.02, 100), *[Place(5.0, 100)] * 7]
    assert best_set(places, [300], 0.05).devices == (CPU,) * 5 + (0,) * 3
    assert best_set(places, [300], 0.005).devices == (0,) * 3 + (CPU,) * 5


def test_a_dear_layer_that_takes_little_comes_first() -> None:
    places = [Place(1.0, 100), Place(9.0, 10), *[Place(1.0, 100)] * 6, Place(30.0, 500)]
    assert best_set(places, [120], 0.05).devices == (0, 0, *(CPU,) * 7)
    assert best_set(places, [520], 0.05).devices == (CPU, 0, *(CPU,) * 6, 0)


def test_two_gpus_take_their_layers_one_after_the_other() -> None:
    found = best_set([Place(5.0, 100)] * 6, [250, 150], 0.05)
    assert found.devices == (CPU, CPU, CPU, 0, 0, 1)


def test_many_unlike_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """More ways than are kept: near the bound all the same, and what is kept more gains no less."""
    rng = random.Random(4)
    places = [Place(rng.uniform(4, 9), rng.randrange(150_000, 250_000)) for _ in range(60)]
    found = best_set(places, [5_000_000], 0.05)
    assert fits(found.devices, places, [5_000_000])
    monkeypatch.setattr(layersets, "MOST_WAYS", 4096)
    better = best_set(places, [5_000_000], 0.05)
    assert found.gain >= 0.998 * better.gain
    assert better.gain <= found.bound <= 1.02 * found.gain
