"""RamaLama: a runtime of our own, chosen with ``--runtime srhpm`` and run with ``--nocontainer``.

RamaLama finds runtimes among the packages of its own Python environment, which is rarely ours. So
a small package is put there: our runtime, the drop-in it starts, and what names it. (An entry point
of this package would reach only a RamaLama beside it, and would be offered there even when it is
not installed.)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from srhpm_plugin._version import __version__
from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.host import (
    HandOver,
    Host,
    HostCall,
    HostModel,
    Installation,
    Mode,
    Steps,
    Tools,
    Translated,
    dropin_files,
)
from srhpm_plugin.install.operations import MakeFolder, Operation, WriteFile
from srhpm_plugin.plan import HostRequest

from . import models as _models
from .places import GROUP, environments, store

PACKAGE = "srhpm_ramalama"
_POINTS = f"[{GROUP}]\nsrhpm = {PACKAGE}:runtime\n"
_ABOUT = (
    "Metadata-Version: 2.1\nName: srhpm-ramalama\nVersion: {version}\n"
    "Summary: SR-HPM as a runtime of RamaLama. Remove it with: "
    "srhpm-plugin uninstall --host ramalama\n"
)
_OLD = "it takes no runtimes of others (0.25.0 does): update it"


class RamaLama:
    """See :class:`srhpm_plugin.host.Host`."""

    name = "ramalama"
    title = "RamaLama"

    def find(self, path: Path | None) -> Iterable[Installation]:
        for found in environments(path):
            yield Installation(
                host=self.name,
                root=found.packages,
                version=found.version,
                installable=found.pluggable,
                how="a runtime of its own, for --nocontainer" if found.pluggable else _OLD,
                facts={"store": str(store())},
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        if not found.installable:
            raise UserError("cannot install in RamaLama", found.how, "see docs/hosts/ramalama.md")
        original = _stock()
        return Steps(
            tuple(_operations(found.root, original, tools, self.name)),
            pick=(
                "Type: ramalama --runtime srhpm --nocontainer serve MODEL (or: run MODEL).",
                "Without --runtime srhpm RamaLama runs as before.",
            ),
            notes=()
            if original
            else (
                "no llama-server is on the PATH: what does not gain runs on ours with everything "
                "of SR-HPM switched off",
            ),
        )

    def registered(self, found: Installation) -> bool:
        points = found.root.glob(f"{PACKAGE}-*.dist-info/entry_points.txt")
        return any(points) and (found.root / PACKAGE / "__init__.py").is_file()

    def models(self, found: Installation) -> Iterable[HostModel]:
        return _models.models(Path(found.facts.get("store") or store()))

    def own_server(self, found: Installation) -> Path | None:
        """What it runs with ``--nocontainer``."""
        return _stock()

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """Only the server tells it."""
        return None

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """RamaLama gives its name of the model as alias, and always a number of threads: half of
        the CPUs, at least four, unless its user says another. That one the plan's takes the place
        of: four threads on two cores wait for each other most of the time.
        """
        argv = call.argv
        values = {flag: argv[i + 1] for i, flag in enumerate(argv[:-1])}
        by_default = values.get("--threads") == str(_threads()) and argv.count("--threads") == 1
        # With flags for speculation the host's words stay as they are, all of them.
        if by_default and not any(a.startswith(("--spec", "--model-draft", "-md")) for a in argv):
            request = replace(request, threads=None)
            return Translated(request, _name(values, request), overruled=("-t",))
        return Translated(request, _name(values, request))


def _name(values: Mapping[str, str], request: HostRequest) -> str:
    return values.get("--alias") or request.model.name


def _operations(root: Path, original: Path | None, tools: Tools, host: str) -> Iterator[Operation]:
    """What names the runtime comes last: RamaLama loads what is named at every start."""
    package, metadata = root / PACKAGE, _metadata(root)
    suffix = tools.dropin.suffix if tools.dropin.suffix.lower() == ".exe" else ""
    yield MakeFolder(package)
    # Python would keep compiled code there, which nobody would take back.
    yield WriteFile(package / "__pycache__", b"", mode=0o644)
    yield from dropin_files(package / f"llama-server{suffix}", host, original, tools, "all")
    source = Path(__file__).with_name("runtime.py").read_bytes()
    yield WriteFile(package / "__init__.py", source, mode=0o644)
    yield MakeFolder(metadata)
    about = _ABOUT.format(version=__version__).encode()
    yield WriteFile(metadata / "METADATA", about, mode=0o644)
    yield WriteFile(metadata / "entry_points.txt", _POINTS.encode(), mode=0o644)


def _metadata(root: Path) -> Path:
    return root / f"{PACKAGE}-{__version__}.dist-info"


def _stock() -> Path | None:
    """What RamaLama starts with ``--nocontainer``: the ``llama-server`` of the ``PATH``."""
    found = shutil.which("llama-server")
    path = Path(found).absolute() if found else None
    return path if path is not None and not Note.path_for(path.resolve()).exists() else None


def _threads() -> int:
    """Threads that RamaLama asks for when its user says nothing (0.25.0): half of the CPUs."""
    cpus = os.cpu_count()
    return cpus // 2 if cpus and cpus > 4 else 4


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """RamaLama."""
    return (RamaLama(),)
