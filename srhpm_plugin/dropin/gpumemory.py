"""Whether GPUs still have room for a plan that was kept.

NVIDIA's driver answers at once. Where it does not know the GPU our server is asked, which takes as
long as its GPU library does to start: still less than a new decision.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .answer import Answer

if TYPE_CHECKING:
    from ..machine.types import Machine
    from ..plan import LaunchPlan

# So much more free memory than when a plan left weights in RAM is worth another look.
_MORE_ROOM, _LEAST_MORE = 10, 256 << 20
# The driver's total and the server's differ by what the driver keeps to itself.
_SAME_TOTAL = 0.05
_LONGEST_NAME = 96


@dataclass(frozen=True)
class Room:
    """What a plan needs of one GPU.

    Attributes:
        device: the server's name for it, e.g. ``CUDA0``.
        description: the card's name.
        total: bytes it has.
        needs: bytes that must be free.
        most: bytes of which more being free calls for another plan; 0: never.
    """

    device: str
    description: str
    total: int
    needs: int
    most: int

    @classmethod
    def of(cls, plan: LaunchPlan, machine: Machine) -> tuple[Room, ...]:
        """One for each GPU that holds a part of the plan, or could hold one if it had more room."""
        from ..planner.place import all_layers
        from ..planner.room import reserve

        cards = {gpu.name: gpu for gpu in machine.gpus}
        whole = plan.gpu_layers >= all_layers(plan.model) and not plan.cpu_moe
        return tuple(
            cls(
                use.device,
                cards[use.device].description,
                cards[use.device].total,
                use.total + reserve(use.device, machine) if use.total else 0,
                0 if whole else use.free + max(use.free // _MORE_ROOM, _LEAST_MORE),
            )
            for use in plan.memory
            if use.device in cards and not (whole and not use.total)
        )

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Room:
        """From plain data, as :func:`dataclasses.asdict` gives it.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        numbers = (int(data[name]) for name in ("total", "needs", "most"))
        return cls(str(data["device"]), str(data["description"]), *numbers)

    def takes(self, free: int) -> bool:
        """Whether the plan is still the one to start with so many bytes free."""
        return free >= self.needs and not (self.most and free > self.most)


def suffices(
    rooms: Sequence[Room],
    answer: Answer,
    env: Mapping[str, str],
    load: Callable[[], Any] | None = None,
) -> bool:
    """Whether each GPU has the room.

    Args:
        rooms: what is needed.
        answer: the start that needs it.
        env: the host's environment.
        load: loads NVIDIA's library, for tests.
    """
    if not rooms:
        return True
    cards = list(_driver(load or _library))
    by_driver = [_least_free(room, cards) for room in rooms]
    if all(free is not None for free in by_driver):
        return all(r.takes(f) for r, f in zip(rooms, by_driver, strict=True) if f is not None)
    from ..machine.gpus import server_gpus
    from .borrow import NAMED, VARIABLE, passed_on

    lent = {name: answer.env[name] for name in (VARIABLE, NAMED) if name in answer.env}
    with passed_on(lent, env):
        listed = {gpu.name: gpu for gpu in server_gpus(answer.program, []) or ()}
    return all(
        room.device in listed
        and listed[room.device].description == room.description
        and room.takes(listed[room.device].free)
        for room in rooms
    )


def _least_free(room: Room, cards: Sequence[tuple[str, int, int]]) -> int | None:
    """Of all cards of that name: driver and server may count them in another order."""
    same = [
        free
        for name, total, free in cards
        if name == room.description and abs(total - room.total) <= room.total * _SAME_TOTAL
    ]
    return min(same, default=None)


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def _library() -> Any:
    return ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")


def _driver(load: Callable[[], Any]) -> Iterator[tuple[str, int, int]]:
    """Name, total and free bytes of NVIDIA's cards; none without the driver.

    The Python package for this (``nvidia-ml-py``) is larger than all that the short way imports.
    """
    try:
        nvml = load()
        if nvml.nvmlInit_v2() != 0:
            return
    except (OSError, AttributeError):
        return
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return
        for index in range(count.value):
            card, memory = ctypes.c_void_p(), _Memory()
            name = ctypes.create_string_buffer(_LONGEST_NAME)
            asked = (
                nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(card)),
                nvml.nvmlDeviceGetName(card, name, ctypes.c_uint(_LONGEST_NAME)),
                nvml.nvmlDeviceGetMemoryInfo(card, ctypes.byref(memory)),
            )
            if not any(asked):
                yield name.value.decode("utf-8", "replace"), memory.total, memory.free
    except AttributeError:
        return
    finally:
        nvml.nvmlShutdown()
