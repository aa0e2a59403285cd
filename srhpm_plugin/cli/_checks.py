"""What ``srhpm-plugin doctor`` looks at: one small function per thing, each answering with data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .. import home
from ..backend import Command
from ..blame import PluginError
from ..errors import UserError
from ..launch.prepare import child_env
from ..machine.gpus import bounded_output
from ..machine.types import Machine
from ..planner.sources import missing_places
from ..planner.units import size
from ..plugins import GROUP, plugins
from ._check import Check

GIB = 1 << 30
# A portable build with all processor variants needs the most; models come on top.
_DISK_LEAST = 3 * GIB
_START_SECONDS = 60.0


def server_program() -> Path | None:
    """The patched server.

    Raises:
        UserError: ``SRHPM_SERVER`` names no file.
    """
    return plugins().backend("srhpm").server()


def check_plugins() -> Iterator[Check]:
    """Third-party plugins that were skipped, and the backends there are."""
    try:
        loaded = plugins()
    except Exception as error:
        yield _damaged(error)
        return
    for broken in loaded.broken:
        yield Check(
            f"plugin {broken.name}", "broken", f"skipped: {broken.reason}", _uninstall(broken.name)
        )
    failed = None
    try:
        # Hooks that ask for nothing can be tried.
        backends = sorted(loaded.backends())
        loaded.hook.srhpm_model_sources()
        yield Check("plugins", "ok", f"backends {', '.join(backends)}")
    except PluginError as error:
        failed = error.plugin
        yield Check(f"plugin {failed}", "broken", error.why, _uninstall(failed))
    except Exception as error:
        yield _damaged(error)
    for entry in loaded.strangers:
        if entry.name != failed:
            yield Check(f"plugin {entry.name}", "ok", f"loaded from {entry.value}")


def _damaged(error: Exception) -> Check:
    words = f"they cannot be loaded: {type(error).__name__}: {error}"
    return Check("plugins", "broken", words, "pip install --force-reinstall srhpm-plugin")


def check_server() -> Iterator[Check]:
    """The patched server: there, and does it start."""
    missing = plugins().backend("srhpm").missing()
    try:
        server = server_program()
    except UserError as error:
        yield Check("server", "broken", f"{error.what}: {error.why}", error.do)
        return
    if server is None:
        yield Check("server", "broken", "not built yet", missing)
        return
    try:
        env = child_env(Command((), {}), None)  # as a launch would start it
        code, text = bounded_output([str(server), "--version"], env, _START_SECONDS, 1 << 16)
    except (OSError, subprocess.SubprocessError) as error:
        code, text = -1, str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    if code != 0:
        why = lines[-1].strip() if lines else f"exit code {code}"
        yield Check("server", "broken", f"{server} does not start: {why}", f"{missing} --force")
        return
    version = next((line for line in lines if line.startswith("version")), "starts")
    yield Check("server", "ok", f"{server} ({version})")


def check_baseline() -> Iterator[Check]:
    """Which program stands for stock llama.cpp in comparisons."""
    from ..backends.stock import find_stock

    try:
        found = find_stock()
    except UserError as error:
        yield Check("stock server", "warning", f"{error.what}: {error.why}", error.do)
        return
    if found is None:
        yield Check("stock server", "warning", "none to compare with until ours is built")
    else:
        yield Check("stock server", "ok", f"{found.path}: {found.origin}")


def check_environment() -> Iterator[Check]:
    """Variables that are options of every llama-server that inherits them."""
    unset = "Remove-Item Env:{}" if sys.platform == "win32" else "unset {}"
    fine = True
    for name, value in sorted(os.environ.items()):
        if not name.startswith(("LLAMA_ARG_", "SRHPM_")) or (value and name.startswith("SRHPM_")):
            continue
        fine = False
        if value:
            detail = "changes servers that hosts start; our own launches leave it out"
        else:
            detail = "set but empty: a server that inherits it may exit on it"
        yield Check(name, "warning", detail, unset.format(name))
    if fine:
        yield Check("environment", "ok", "no LLAMA_ARG_* variables")


def check_config_files() -> Iterator[Check]:
    """llama.cpp's own configuration files, which every server reads before its command line."""
    for path in _config_files():
        if path.is_file():
            yield Check(
                "llama.cpp configuration",
                "warning",
                f"{path} changes every server; options our plans do not name come from there",
                f"look into {path}",
            )


def check_machine(machine: Machine) -> Iterator[Check]:
    """Processor and GPUs, and what could not be found out about them."""
    cpu = machine.cpu
    cores = f"{cpu.physical} cores"
    if cpu.performance < cpu.physical:
        cores = f"{cpu.performance} performance and {cpu.physical - cpu.performance} other cores"
    if cpu.usable < cpu.physical:
        cores += f", {cpu.usable} usable"
    yield Check("processor", "ok", f"{cpu.name}, {cores}")
    gpus = [f"{g.name} {g.description}, {size(g.free)} free" for g in machine.gpus]
    yield Check("GPUs", "ok", "; ".join(gpus) or "none")
    for note in machine.notes:
        fix = "srhpm-plugin native build --cuda" if "the server cannot use it" in note else None
        yield Check("machine", "warning", note, fix)


def check_folders() -> Iterator[Check]:
    """Our folders: writable, and with room for a build."""
    try:
        home.require_usable()
    except UserError as error:
        yield Check("folders", "broken", f"{error.what}: {error.why}", home.move())
        return
    for name, folder in (
        ("data", home.data_dir()),
        ("cache", home.cache_dir()),
        ("configuration", home.config_dir()),
    ):
        existing = next(p for p in (folder, *folder.parents) if p.exists())
        free = shutil.disk_usage(existing).free
        if name != "configuration" and free < _DISK_LEAST:
            detail = f"{folder}: only {size(free)} free on that disk"
            yield Check(f"{name} folder", "warning", detail, home.move())
        else:
            yield Check(f"{name} folder", "ok", f"{folder}, {size(free)} free")


def check_models() -> Iterator[Check]:
    """The places of models that the user named."""
    missing = missing_places()
    for who, place in missing:
        fix = home.setting(who) if who == "SRHPM_MODELS" else f"look into {who}"
        yield Check("models", "warning", f"{who} names {place}, which is not there", fix)
    if not missing:
        yield Check("models", "ok", "every folder named is there")


def check_launches() -> Iterator[Check]:
    """Models whose last start in a host failed."""
    from ..dropin.status import blocked_models

    found = blocked_models()
    for row in found:
        yield Check("launches", "warning", f"{row['model']}: {row['reason']}", row["fix"])
    if not found:
        yield Check("launches", "ok", "no model failed at its last start")


def _uninstall(entry_point: str) -> str | None:
    """The command that removes the package of an entry point."""
    for entry in metadata.entry_points(group=GROUP):
        if entry.name == entry_point and entry.dist is not None:
            return f"pip uninstall {entry.dist.name}"
    return None


def _config_files() -> list[Path]:
    if sys.platform == "win32":
        places = [os.environ.get("PROGRAMDATA"), os.environ.get("APPDATA")]
    else:
        places = ["/etc", os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")]
    return [Path(place) / "llama.cpp" / "config.ini" for place in places if place]
