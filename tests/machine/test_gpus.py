"""Device lists of the server and of the NVIDIA driver, and how they are put together."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from srhpm_plugin.machine import gpus
from srhpm_plugin.machine.gpus import MIB, bounded_output, driver_gpus, merge, parse_devices
from srhpm_plugin.machine.types import Gpu

LIST = """ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
Available devices:
  CUDA0: NVIDIA GeForce RTX 4090 (24576 MiB, 23000 MiB free)
  CUDA1: NVIDIA GeForce GTX 1650 (4096 MiB, 3900 MiB free)
  Vulkan0: NVIDIA GeForce RTX 4090 (24576 MiB, 24000 MiB free)
  Vulkan1: AMD Radeon(TM) Graphics (RADV RAPHAEL) (16000 MiB, 15000 MiB free)
  BLAS: OpenBLAS (0 MiB, 0 MiB free)
"""


def gpu(name: str, description: str, free: int, total: int = 24576, source: str = "x") -> Gpu:
    return Gpu(name, description, total * MIB, free * MIB, source)


def test_server_list():
    found = parse_devices(LIST)
    assert [g.name for g in found] == ["CUDA0", "CUDA1", "Vulkan1"]
    assert found[0] == Gpu(
        "CUDA0", "NVIDIA GeForce RTX 4090", 24576 * MIB, 23000 * MIB, gpus.FROM_SERVER
    )
    assert found[2].description == "AMD Radeon(TM) Graphics (RADV RAPHAEL)"


@pytest.mark.parametrize("text", ["", "Available devices:\n  (none)\n", "  CUDA0: X (a, b)\n"])
def test_no_devices(text):
    assert parse_devices(text) == ()


def test_free_is_never_above_total():
    (found,) = parse_devices("  MTL0: Apple M4 (100 MiB, 200 MiB free)\n")
    assert found.free == found.total


@pytest.mark.server
def test_real_server_answers(server_dir):
    server = server_dir / ("llama-server.exe" if sys.platform == "win32" else "llama-server")
    notes: list[str] = []
    assert gpus.server_gpus(server, notes) is not None
    assert notes == []


@pytest.mark.server
def test_empty_llama_arg_does_not_hide_the_devices(server_dir, monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_N_CPU_MOE", "")
    server = server_dir / ("llama-server.exe" if sys.platform == "win32" else "llama-server")
    notes: list[str] = []
    assert gpus.server_gpus(server, notes) is not None
    assert notes == []


def test_missing_server_is_a_note(tmp_path):
    notes: list[str] = []
    assert gpus.server_gpus(tmp_path / "nothing", notes) is None
    assert "--list-devices failed" in notes[0]


def test_server_that_fails_is_a_note(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "bounded_output", lambda *a: (1, "one\ntwo: bad\n"))
    notes: list[str] = []
    assert gpus.server_gpus(tmp_path, notes) is None
    assert notes[0].endswith("ended with code 1: two: bad")


def test_bounded_output_kills_what_hangs():
    started = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        bounded_output([sys.executable, "-c", "import time; time.sleep(60)"], {}, 0.5, 100)
    assert time.monotonic() - started < 30


def test_bounded_output_stops_a_flood():
    flood = "import sys\nwhile True: sys.stdout.write('x' * 1000)"
    code, text = bounded_output([sys.executable, "-c", flood], {}, 60, 5000)
    assert code != 0
    assert text == "x" * 5000


def test_bounded_output_takes_both_streams():
    both = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    code, text = bounded_output([sys.executable, "-c", both], {}, 60, 5000)
    assert (code, text.split()) == (3, ["out", "err"])


class _Error(Exception):
    pass


class _LibraryNotFound(_Error):
    pass


_LibraryNotFound.__name__ = "NVMLError_LibraryNotFound"


def nvml(cards, init: Exception | None = None):
    def start():
        if init:
            raise init

    def handle(index):
        if isinstance(cards[index], Exception):
            raise cards[index]
        return cards[index]

    return SimpleNamespace(
        NVMLError=_Error,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(cards),
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetName=lambda card: card[0],
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(total=card[1], free=card[2]),
    )


def test_driver_list():
    notes: list[str] = []
    found = driver_gpus(
        notes, lambda: nvml([(b"Card A", 10, 4), _Error("fell off the bus"), ("Card B", 20, 5)])
    )
    assert found == (
        Gpu("CUDA0", "Card A", 10, 4, gpus.FROM_DRIVER),
        Gpu("CUDA2", "Card B", 20, 5, gpus.FROM_DRIVER),
    )
    assert notes == ["NVIDIA GPU 1 does not answer: fell off the bus"]


def test_no_nvml_and_no_driver_are_silent_but_a_broken_driver_is_not():
    def missing():
        raise ImportError

    notes: list[str] = []
    assert driver_gpus(notes, missing) == ()
    assert driver_gpus(notes, lambda: nvml([], _LibraryNotFound("no lib"))) == ()
    assert notes == []
    assert driver_gpus(notes, lambda: nvml([], _Error("version mismatch"))) == ()
    assert notes == ["the NVIDIA driver does not answer: version mismatch"]


def test_merge_keeps_the_servers_names_and_the_smaller_free_memory():
    listed = [gpu("CUDA0", "Big", 20000), gpu("CUDA1", "Small", 3000)]
    driver = [gpu("CUDA0", "Small", 3100), gpu("CUDA1", "Big", 19000)]
    notes: list[str] = []
    merged = merge(listed, driver, notes)
    assert [(g.name, g.description, g.free // MIB) for g in merged] == [
        ("CUDA0", "Big", 19000),
        ("CUDA1", "Small", 3000),
    ]
    assert notes == []


def test_merge_tells_equal_cards_apart_by_their_state():
    listed = [gpu("CUDA0", "Card", 23000), gpu("CUDA1", "Card", 1000)]
    driver = [gpu("CUDA0", "Card", 1100), gpu("CUDA1", "Card", 22900)]
    merged = merge(listed, driver, [])
    assert [g.free // MIB for g in merged] == [22900, 1000]


def test_gpu_that_the_server_cannot_use_is_a_note():
    notes: list[str] = []
    assert merge([], [gpu("CUDA0", "NVIDIA H200", 100)], notes) == ()
    assert "NVIDIA H200 is there, but the server cannot use it" in notes[0]


def test_without_a_server_the_driver_decides(monkeypatch):
    card = gpu("CUDA0", "Card", 5)
    monkeypatch.setattr(gpus, "driver_gpus", lambda notes: (card,))
    assert gpus.read_gpus(None, []) == (card,)
