"""Whether the host's own server can use a GPU that ours cannot."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..machine.gpus import bounded_output, parse_devices

_LIBRARIES = ("ggml-cuda", "ggml-hip", "ggml-vulkan", "ggml-metal", "ggml-sycl", "ggml-musa")
_SECONDS = 15.0
_BYTES = 1 << 16
_MOST_ENTRIES = 2000
# Devices that an environment hides or names.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def host_gpu(original: Path, env: Mapping[str, str], wanted: bool) -> str | None:
    """The GPU that the host's server lists, in words; ``None``: it has none to use.

    It is asked itself, where anything hints at one: a GPU library in its folders or in
    ``GGML_BACKEND_PATH``, a device node, or ``wanted``.

    Args:
        original: the host's server.
        env: the host's environment, with which it is asked.
        wanted: the arguments name a device.
    """
    if not (wanted or _named(env) or _nodes() or any(_gpu_libraries(_folders(original, env)))):
        return None
    if all(env.get(name) in ("", "-1") for name in _VISIBLE if name in env) and _hidden(env):
        return None
    asked = {k: v for k, v in env.items() if not k.startswith("LLAMA_")}
    try:
        code, text = bounded_output([str(original), "--list-devices"], asked, _SECONDS, _BYTES)
    except (OSError, subprocess.SubprocessError):
        return None
    devices = parse_devices(text) if code == 0 else ()
    return devices[0].description if devices else None


def _hidden(env: Mapping[str, str]) -> bool:
    return any(name in env for name in _VISIBLE) and "GGML_VK_VISIBLE_DEVICES" not in env


def _named(env: Mapping[str, str]) -> bool:
    named = Path(env.get("GGML_BACKEND_PATH", "")).name
    return any(library in named for library in _LIBRARIES)


def _folders(original: Path, env: Mapping[str, str]) -> Iterable[Path]:
    yield original.parent
    for variable in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
        yield from (Path(part) for part in env.get(variable, "").split(os.pathsep) if part)


def _gpu_libraries(folders: Iterable[Path]) -> Iterable[str]:
    """Names of GPU backend libraries in these folders and the folders directly in them."""
    left = _MOST_ENTRIES
    for folder in folders:
        for path in _entries(folder):
            left -= 1
            if left < 0:
                return
            if is_gpu_library(path):
                yield path.name
            elif path.is_dir():
                yield from (inner.name for inner in _entries(path) if is_gpu_library(inner))


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def is_gpu_library(path: Path) -> bool:
    """Whether a file is called as GPU backends of ggml are."""
    return any(library in path.name for library in _LIBRARIES)


def _nodes() -> bool:
    """Whether the system shows a GPU at all."""
    if sys.platform == "darwin":
        found = True
    elif sys.platform == "win32":
        system = Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32"
        found = any((system / name).exists() for name in ("nvcuda.dll", "amdhip64.dll"))
    else:
        found = Path("/dev/kfd").exists() or any(Path("/dev").glob("nvidia[0-9]*"))
    return found
