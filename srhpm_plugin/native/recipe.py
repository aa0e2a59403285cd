"""What is built and how: options, our sources, and the fingerprint that tells builds apart."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .toolchain import Toolchain

PROGRAMS = (
    "llama-server",
    "llama-quantize",
    "llama-bench",
    "llama-perplexity",
    "llama-imatrix",
    "bench-kernels",
    "bench-rpc",
    "bench-gpu",
    "srhpm-llama-server",
    "ggml-rpc-server",
)
TESTS = (
    "test-bench-gpu",
    "test-exact",
    "test-floats",
    "test-kernels",
    "test-offload",
    "test-packed",
    "test-passes",
    "test-policy",
    "test-server",
    "test-states",
)


@dataclass(frozen=True)
class Recipe:
    """Choices of one build.

    Attributes:
        tag: llama.cpp tag number.
        source: an upstream tree given by the user, else the pinned package.
        portable: dynamic CPU backends for all processors, else this machine's own instructions.
        cuda, vulkan: build that GPU backend.
    """

    tag: int
    source: Path | None = None
    portable: bool = False
    cuda: bool = False
    vulkan: bool = False

    @property
    def name(self) -> str:
        """Folder name of the work tree and of the installed build."""
        parts = [f"b{self.tag}", "portable" if self.portable else "native"]
        parts += [name for name in ("cuda", "vulkan") if getattr(self, name)]
        if self.source:
            parts.append(hashlib.sha256(str(self.source).encode()).hexdigest()[:8])
        return "-".join(parts)

    @property
    def options(self) -> dict[str, str]:
        """CMake's options that change what is built."""
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "LLAMA_BUILD_NUMBER": str(self.tag),
            "LLAMA_BUILD_COMMIT": "srhpm",
            # One more file to compile; nothing listens or connects without --rpc.
            "GGML_RPC": "ON",
            "GGML_RPC_RDMA": "OFF",  # else a library that this machine happens to have is needed
            "GGML_CUDA": _on(self.cuda),
            "GGML_VULKAN": _on(self.vulkan),
        }
        if self.portable:
            options |= {
                "BUILD_SHARED_LIBS": "ON",
                "GGML_BACKEND_DL": "ON",
                "GGML_CPU_ALL_VARIANTS": "ON",
                "GGML_NATIVE": "OFF",
                # OpenMP's runtime would be one more library to carry along.
                "GGML_OPENMP": "OFF",
            }
        else:
            # One file per program: no library of a host's can come between its parts.
            options |= {
                "BUILD_SHARED_LIBS": "OFF",
                "GGML_BACKEND_DL": "OFF",
                "GGML_NATIVE": "ON",
            }
        return options

    def cmake_options(self, tools: Toolchain, llama_tree: Path) -> list[str]:
        """``-D`` options, ours and upstream's."""
        options = {
            **self.options,
            "CMAKE_MAKE_PROGRAM": str(tools.ninja),
            "SRHPM_LLAMA_DIR": llama_tree.as_posix(),
        }
        if tools.ccache:
            for language in ("C", "CXX"):
                options[f"CMAKE_{language}_COMPILER_LAUNCHER"] = str(tools.ccache)
        return [f"-D{key}={value}" for key, value in options.items()]


def _on(value: bool) -> str:
    return "ON" if value else "OFF"


def native_dir() -> Path:
    """Our native sources: in the wheel, or beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_native"
    return packed if packed.is_dir() else package.parent / "native"


def our_files() -> list[Path]:
    """Every file of ours that goes into a build, relative to :func:`native_dir`."""
    root = native_dir()
    files = [root / "CMakeLists.txt", root / "hooks.toml"]
    for folder in ("bench", "dropin", "kernels", "overlay", "tests"):
        files += [path for path in sorted((root / folder).rglob("*")) if path.is_file()]
    return [path.relative_to(root) for path in files]


def fingerprint(recipe: Recipe, tools: Toolchain, source_sha256: str) -> str:
    """One hash over everything that changes the result of a build."""
    digest = hashlib.sha256()
    facts: list[Any] = [
        source_sha256,
        recipe.name,
        recipe.options,
        PROGRAMS,
        TESTS,
        tools.cxx_version,
        sys.platform,
        platform.machine(),
        # -march=native means another thing on another processor
        None if recipe.portable else platform.processor() or _cpu_model(),
    ]
    digest.update(json.dumps(facts).encode())
    for path in our_files():
        digest.update(path.as_posix().encode() + b"\0")
        digest.update((native_dir() / path).read_bytes())
    return digest.hexdigest()


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return ""
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
