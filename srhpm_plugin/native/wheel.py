"""The built server as a platform wheel, ``srhpm-native``: install it and nothing is compiled."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from .._version import __version__
from ..errors import UserError
from .locate import INFO_NAME
from .recipe import PROGRAMS

_SONAME = re.compile(r"\.so\.\d+$|\.\d+\.dylib$")

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "srhpm-native"
version = "{version}"
description = "The patched llama.cpp server of srhpm-plugin, built"
license = "MIT"
requires-python = ">=3.10"

[tool.setuptools]
packages = ["srhpm_native"]

[tool.setuptools.package-data]
srhpm_native = ["build/**"]
"""


def platform_tag() -> str:
    """Wheel platform tag of this machine.

    On glibc it is the manylinux tag (PEP 600) of this machine's own glibc, which the programs were
    linked against: older systems are refused at installation instead of failing at start.
    """
    libc, version = platform.libc_ver()
    if sys.platform == "linux" and libc == "glibc":
        return f"manylinux_{version.replace('.', '_')}_{platform.machine()}"
    return re.sub(r"[-.]", "_", sysconfig.get_platform())


def files_to_pack(folder: Path) -> dict[str, Path]:
    """Name in the wheel's ``bin`` -> file. Wheels carry no links, so each library goes in once,
    under the name that programs ask for."""
    packed: dict[str, Path] = {}
    for path in sorted((folder / "bin").iterdir()):
        if path.is_symlink():
            continue
        if (
            path.stem not in PROGRAMS
            and path.name not in PROGRAMS
            and path.stem.startswith("test-")
        ):
            continue
        links = [p.name for p in path.parent.iterdir() if p.is_symlink() and p.resolve() == path]
        asked = [name for name in links if _SONAME.search(name)]
        packed[asked[0] if asked else path.name] = path
    return packed


def make_wheel(folder: Path, out: Path) -> Path:
    """Packs the build in ``folder`` into ``out``. Returns the wheel's path.

    Raises:
        UserError: packing failed; carries the last line of the packer.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write to {out}", error.strerror or str(error), "name another folder with --out"
        ) from None
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        target = project / "srhpm_native" / "build"
        (target / "bin").mkdir(parents=True)
        for as_name, path in files_to_pack(folder).items():
            shutil.copy2(path, target / "bin" / as_name)
        shutil.copy2(folder / INFO_NAME, target / INFO_NAME)
        (project / "srhpm_native" / "__init__.py").write_text(
            '"""The built server; srhpm-plugin finds it here."""\n', "utf-8"
        )
        (project / "pyproject.toml").write_text(_PYPROJECT.format(version=__version__), "utf-8")
        (project / "setup.cfg").write_text(
            f"[bdist_wheel]\nplat_name = {platform_tag()}\npython_tag = py3\n", "utf-8"
        )
        argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
        done = subprocess.run(
            [*argv, str(project / "dist"), str(project)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no output"])[
                -1
            ]
            raise UserError("cannot make the wheel", last.strip(), "check that pip works")
        (built,) = (project / "dist").glob("*.whl")
        wheel = out / built.name
        shutil.move(built, wheel)
        return wheel
