"""Compiler, CMake, Ninja, ccache: found, fetched or missed with one clear line."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..home import cache_dir
from .locate import EXE

CMAKE_MIN = (3, 18)

_INSTALL_COMPILER = {
    "linux": "install one, e.g. `sudo apt install g++` or `sudo dnf install gcc-c++`",
    "darwin": "install one with `xcode-select --install`",
    "win32": "install the Visual Studio Build Tools (workload C++) and use their command prompt",
}

# accelerator -> program its toolkit must bring, and what to install
TOOLKITS = {
    "cuda": ("nvcc", "install the CUDA toolkit and put nvcc on PATH, or leave out --cuda"),
    "vulkan": ("glslc", "install the Vulkan SDK (glslc on PATH), or leave out --vulkan"),
}


@dataclass(frozen=True)
class Toolchain:
    """Programs a build needs. ``ccache`` is ``None`` when there is none."""

    cmake: Path
    ninja: Path
    ccache: Path | None
    cxx: str
    cxx_version: str


def find(say: Callable[[str], None]) -> Toolchain:
    """All tools; CMake and Ninja come from PyPI when the machine has none that will do.

    Raises:
        UserError: no C or C++ compiler, or CMake and Ninja can be had from nowhere.
    """
    cxx = compiler()
    return Toolchain(
        cmake=locate("cmake")[0] or _from_pypi("cmake", say),
        ninja=locate("ninja")[0] or _from_pypi("ninja", say),
        ccache=ccache(),
        cxx=cxx,
        cxx_version=_first_line([cxx, "--version"]),
    )


def compiler() -> str:
    """The C++ compiler, which must have one of C beside it.

    Raises:
        UserError: there is none, or ``CXX`` or ``CC`` names none.
    """
    cxx = _compiler("CXX", ("c++", "g++", "clang++", "cl"))
    _compiler("CC", ("cc", "gcc", "clang", "cl"))
    return cxx


def ccache() -> Path | None:
    """The compiler cache, where there is one."""
    found = shutil.which("ccache")
    return Path(found) if found else None


def locate(name: str) -> tuple[Path | None, str]:
    """``cmake`` or ``ninja`` without fetching it: on ``PATH``, or brought from PyPI before; else
    why there is none."""
    found = shutil.which(name) or (shutil.which("ninja-build") if name == "ninja" else None)
    why = "not installed"
    if found is not None:
        if name != "cmake" or _new_enough(found):
            return Path(found), ""
        why = f"{found} is older than {'.'.join(map(str, CMAKE_MIN))}"
    exe = name + EXE
    return _real_program(_tools_dir(name), exe) or _installed_program(name, exe), why


def require_toolkit(accelerator: str) -> None:
    """Raises UserError when the toolkit for ``cuda`` or ``vulkan`` is not installed."""
    program, do = TOOLKITS[accelerator]
    if shutil.which(program) is None:
        raise UserError(f"cannot build with --{accelerator}", f"{program} is not on PATH", do)


def _compiler(variable: str, names: tuple[str, ...]) -> str:
    named = os.environ.get(variable)
    if named:
        # CXX may carry a launcher or flags: the program is the last word that is no flag
        program = [word for word in named.split() if not word.startswith("-")][-1:]
        if program and shutil.which(program[0]):
            return program[0]
        raise UserError(
            "cannot build", f"{variable} is {named!r}, which is no program", f"unset {variable}"
        )
    for name in names:
        if found := shutil.which(name):
            return found
    language = "C++17" if variable == "CXX" else "C"
    raise UserError(
        "cannot build the server",
        f"there is no {language} compiler",
        _INSTALL_COMPILER.get(sys.platform, _INSTALL_COMPILER["linux"]),
    )


def _new_enough(cmake: str) -> bool:
    version = re.search(r"(\d+)\.(\d+)", _first_line([cmake, "--version"]))
    return version is not None and (int(version[1]), int(version[2])) >= CMAKE_MIN


def _tools_dir(name: str) -> Path:
    return cache_dir() / "tools" / name


def _from_pypi(name: str, say: Callable[[str], None]) -> Path:
    folder = _tools_dir(name)
    say(f"fetching {name} from PyPI")
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    argv += ["--only-binary", ":all:", "--target", str(folder), "--upgrade", name]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    program = _real_program(folder, name + EXE)
    if done.returncode != 0 or program is None:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["pip failed"]
        raise UserError(
            f"cannot build the server: {name} is missing",
            f"PyPI did not bring it ({lines[-1].strip()})",
            f"check the network, or install {name} yourself",
        )
    return program


def _real_program(folder: Path, exe: str) -> Path | None:
    # The scripts that pip installs into --target/bin do not find their package; the program itself
    # lies in PACKAGE/data/bin (cmake) or bin (ninja).
    for pattern in (f"*/data/bin/{exe}", f"bin/{exe}"):
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and path.read_bytes()[:2] != b"#!":
                return path
    return None


def _installed_program(name: str, exe: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return _real_program(Path(next(iter(spec.submodule_search_locations))).parent, exe)


def _first_line(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return (done.stdout or done.stderr).strip().partition("\n")[0]
