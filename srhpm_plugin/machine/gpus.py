"""GPUs and their free memory: what the server can use, checked against the NVIDIA driver."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .types import Gpu

MIB = 1024 * 1024
FROM_SERVER = "llama-server --list-devices"
FROM_DRIVER = "nvml"

_DEVICE = re.compile(r"^\s+(.+?):\s+(.+?)\s+\((\d{1,12})\s+MiB,\s+(\d{1,12})\s+MiB\s+free\)")
_LIST_BYTES = 1 << 16


def read_gpus(server: Path | None, notes: list[str]) -> tuple[Gpu, ...]:
    """The GPUs, under the server's device names when a ``server`` is given and answers."""
    driver = driver_gpus(notes)
    listed = None if server is None else server_gpus(server, notes)
    return driver if listed is None else merge(listed, driver, notes)


def server_gpus(server: Path, notes: list[str], timeout: float = 60.0) -> tuple[Gpu, ...] | None:
    """What ``server --list-devices`` prints; ``None`` with a note when it does not work.

    The first start after a driver update may compile device code, hence the long timeout
    (seconds).
    """
    # An empty LLAMA_ARG_* in the environment would end the server before it lists anything.
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    try:
        code, text = bounded_output([str(server), "--list-devices"], env, timeout, _LIST_BYTES)
    except (OSError, subprocess.SubprocessError) as error:
        reason = "no answer in time" if isinstance(error, subprocess.TimeoutExpired) else error
        notes.append(f"{server} --list-devices failed: {reason}")
        return None
    if code != 0:
        last = (text.strip().splitlines() or ["no output"])[-1]
        notes.append(f"{server} --list-devices ended with code {code}: {last[:200]}")
        return None
    return parse_devices(text)


def parse_devices(text: str) -> tuple[Gpu, ...]:
    """The device lines of ``--list-devices``.

    Accelerators without memory (BLAS) are no GPUs. A GPU that a second backend offers again
    (``Vulkan0`` beside ``CUDA0``) counts once, under the backend listed first.
    """
    found: list[Gpu] = []
    first_backend: dict[str, str] = {}
    for line in text.splitlines():
        match = _DEVICE.match(line)
        if not match or match[3] == "0":
            continue
        name, description = match[1], match[2]
        backend = name.rstrip("0123456789")
        if first_backend.setdefault(description, backend) != backend:
            continue
        total, free = int(match[3]) * MIB, int(match[4]) * MIB
        found.append(Gpu(name, description, total, min(free, total), FROM_SERVER))
    return tuple(found)


def driver_gpus(
    notes: list[str], load: Callable[[], Any] = lambda: importlib.import_module("pynvml")
) -> tuple[Gpu, ...]:
    """NVIDIA GPUs as the driver sees them; empty without nvidia-ml-py or driver.

    The names are those a CUDA build of the server gives unless ``CUDA_VISIBLE_DEVICES`` or
    ``CUDA_DEVICE_ORDER`` reorders the devices.
    """
    try:
        nvml = load()
    except ImportError:
        return ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if type(error).__name__ != "NVMLError_LibraryNotFound":
            notes.append(f"the NVIDIA driver does not answer: {error}")
        return ()
    found: list[Gpu] = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                name = nvml.nvmlDeviceGetName(handle)
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                label = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
                found.append(
                    Gpu(f"CUDA{index}", label, int(memory.total), int(memory.free), FROM_DRIVER)
                )
            except nvml.NVMLError as error:
                notes.append(f"NVIDIA GPU {index} does not answer: {error}")
    except nvml.NVMLError as error:
        notes.append(f"the NVIDIA driver does not answer: {error}")
    finally:
        nvml.nvmlShutdown()
    return tuple(found)


def merge(listed: Sequence[Gpu], driver: Sequence[Gpu], notes: list[str]) -> tuple[Gpu, ...]:
    """The server's devices; the driver's ones that are not among them become notes.

    Free memory is the smaller of both reports: on Windows the server sees memory that the
    system would page out to RAM.
    """
    rest = list(driver)
    merged: list[Gpu] = []
    for gpu in listed:
        same = [other for other in rest if other.description == gpu.description]
        if same:
            # Several cards of one kind: the one in the most similar state is the same card.
            twin = min(same, key=lambda other: abs(other.free - gpu.free))
            rest.remove(twin)
            free = min(gpu.free, twin.free)
            gpu = Gpu(gpu.name, gpu.description, gpu.total, free, gpu.source)  # noqa: PLW2901
        merged.append(gpu)
    notes.extend(
        f"GPU {gpu.description} is there, but the server cannot use it: "
        "it was built without CUDA, or the device is hidden from it"
        for gpu in rest
    )
    return tuple(merged)


def bounded_output(
    argv: Sequence[str], env: dict[str, str], timeout: float, limit: int
) -> tuple[int, str]:
    """Exit code and output (stdout and stderr, at most ``limit`` bytes) of a program.

    A program that writes more or runs longer than ``timeout`` seconds is killed.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was killed.
    """
    with subprocess.Popen(
        list(argv),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        data = bytearray()

        def read() -> None:
            assert process.stdout is not None
            while len(data) < limit and (
                block := os.read(process.stdout.fileno(), limit - len(data))
            ):
                data.extend(block)
            if len(data) >= limit:
                process.kill()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            code = process.wait(timeout)
            # A grandchild may hold the pipe open: what it writes later is not waited for.
            reader.join(1.0)
        except BaseException:
            process.kill()
            raise
        return code, bytes(data).decode("utf-8", "replace")
