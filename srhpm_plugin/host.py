"""What a host is: an app that starts a ``llama-server``, and what its plugin tells the core.

A host plugin only describes: where the app is, which file operations register SR-HPM in it
(:mod:`srhpm_plugin.install.operations`), which models it has, and what its command lines mean.
The core executes, journals and undoes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from .install.operations import Operation
from .plan import HostRequest

Mode = Literal["all", "select"]


@dataclass(frozen=True)
class Installation:
    """One installed copy of a host.

    Attributes:
        host: the plugin's name, e.g. ``ollama``.
        root: the folder or file that tells this copy from others, absolute.
        version: as the host says it; ``None`` when it cannot be told without running it.
        installable: SR-HPM can be registered in this copy.
        how: how it is registered, or why it cannot be, in words; one clause.
        facts: whatever else the plugin needs again, e.g. its models folder; strings only, as they
            are kept in the journal.
        user: the account the host runs as when it is not the one that asks (``ollama`` for a
            service), which must be able to read the server and our package; else ``None``.
    """

    host: str
    root: Path
    version: str | None
    installable: bool
    how: str
    facts: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


@dataclass(frozen=True)
class Tools:
    """What an installation may put in place.

    Attributes:
        dropin: the drop-in program to copy.
        python: the interpreter that has this package.
        home: ``SRHPM_HOME`` for the drop-in, which may run in another environment; ``None``: the
            user's own folders.
        server_folder: folder of the patched server's programs.
        state: a folder of our own for this installation, outside the host's.
    """

    dropin: Path
    python: Path
    home: Path | None
    server_folder: Path
    state: Path


@dataclass(frozen=True)
class Steps:
    """What registers SR-HPM in a host.

    Attributes:
        operations: executed in order, undone in reverse order.
        pick: what the user does to choose SR-HPM there, one sentence each.
        notes: what else there is to know, e.g. that the host must be restarted.
    """

    operations: tuple[Operation, ...]
    pick: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelWords:
    """What a store says of a model, for those who serve it in the host's stead.

    Attributes:
        digest: 64 hexadecimal digits, the store's own name for this version of the model.
        modified: when it last changed, seconds since 1970.
        template: a Go template; shown, never rendered.
        system: system message put first where a request has none.
        parameters: Ollama's options that apply where a request does not say otherwise.
        messages: turns put before those of a request.
        licenses: texts.
    """

    digest: str
    modified: float
    template: str | None = None
    system: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()
    licenses: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostModel:
    """A model under the name by which the host's users know it.

    Attributes:
        name: e.g. ``qwen3:27b``.
        path: the GGUF file (no ``.gguf`` ending needed).
        drafter: a drafter that the host has for it.
        mmproj: its projector.
        adapters: LoRA files.
        ctx: context the host would start it with, tokens.
        twin: the name is a twin: it runs on SR-HPM while its base stays stock.
        unfit: why our server cannot run it, in words; ``None`` when it can.
        words: what the host's store says of it beside its files.
    """

    name: str
    path: Path
    drafter: Path | None = None
    mmproj: Path | None = None
    adapters: tuple[Path, ...] = ()
    ctx: int | None = None
    twin: bool = False
    unfit: str | None = None
    words: ModelWords | None = None


@dataclass(frozen=True)
class HostCall:
    """A host has started the drop-in.

    Attributes:
        host: name of the plugin in whose tree the drop-in lies.
        argv: the arguments, without the program.
        env: the environment.
        facts: what the installation's plugin wrote for its drop-in, see :func:`Dropin`.
        mode: which models are to run on SR-HPM.
    """

    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    facts: Mapping[str, str]
    mode: Mode


@dataclass(frozen=True)
class HandOver:
    """The host's own server shall run, with the reason in words."""

    reason: str


@dataclass(frozen=True)
class Translated:
    """A call in our words.

    Attributes:
        request: for the planner; what the host set explicitly is in it.
        model: the host's name of the model, for ``status``; the file's name when there is none.
        drafters: files to look at first when a drafter is chosen.
        picked: the user chose SR-HPM for this model (a twin's name, a runtime): it runs even where
            no gain is predicted, and in mode ``select`` only such models do.
        overruled: flags of the host's that the plan takes the place of, by the first spelling in
            the server's help, e.g. ``--spec-type``. Where ``request.draft`` is not what it was in
            the request handed in, the host's flags for speculation are overruled by themselves.
        rests_on: the host's files that this was read in; when one changes, it is asked anew.
    """

    request: HostRequest
    model: str
    drafters: tuple[Path, ...] = ()
    picked: bool = False
    overruled: tuple[str, ...] = ()
    rests_on: tuple[Path, ...] = ()


@runtime_checkable
class Host(Protocol):
    """A host as a plugin. Stateless; reads the machine, never changes it."""

    @property
    def name(self) -> str:
        """The name on the command line, e.g. ``lm-studio``."""

    @property
    def title(self) -> str:
        """The name people know, e.g. ``LM Studio``."""

    def find(self, path: Path | None) -> Iterable[Installation]:
        """Installed copies, the one to prefer first.

        Args:
            path: the user's ``--path``: only what lies there.
        """

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        """What registers SR-HPM in ``found``.

        Raises:
            UserError: it cannot be, with what to do.
        """

    def registered(self, found: Installation) -> bool:
        """Whether SR-HPM is in place there now (an upgrade of the host may have wiped it)."""

    def models(self, found: Installation) -> Iterable[HostModel]:
        """The host's models. Its files are not trusted: paths from them never leave its folders."""

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """What a call of the drop-in means.

        ``request`` holds what the arguments say, as every llama-server reads them; the plugin adds
        what only its host's manifests and conventions tell.
        """


@runtime_checkable
class TakesOut(Protocol):
    """What a host that edits files of the user's may offer besides."""

    def without_us(self, path: Path, content: bytes) -> bytes | None:
        """A file that the user changed since we wrote it, less our entries.

        ``None`` where it cannot be told; then both the file and its original are kept.
        """


@runtime_checkable
class ByHand(Host, Protocol):
    """What a client may offer besides that is told an address in a form of its own."""

    def by_hand(self) -> Steps:
        """What the user is to do (``pick``), and what there is to know; no operations. Asked where
        no copy is found that can be installed in."""


@runtime_checkable
class OwnServer(Host, Protocol):
    """What a host whose server brings GPU libraries along may offer besides."""

    def own_server(self, found: Installation) -> Path | None:
        """The host's own ``llama-server``, also while the drop-in stands in for it; ``None``: this
        copy has none."""

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """The llama.cpp tag of that server, e.g. ``b10488``, where the host tells it elsewhere than
        in the server's ``--version``, which is asked first. May ask the network."""


def dropin_files(
    place: Path,
    host: str,
    original: Path | None,
    tools: Tools,
    mode: Mode,
    facts: Mapping[str, str] | None = None,
    router: bool = False,
    in_place: bool = False,
) -> Sequence[Operation]:
    """The operations that put the drop-in to ``place`` with the note that it reads beside itself.

    Args:
        place: where the host starts it, e.g. ``…/lib/ollama/llama-server``.
        original: the host's own server; ``None`` where it has none: then the patched server runs
            with everything of ours switched off. A relative path counts from ``place``'s folder.
        facts: handed back in :class:`HostCall`.
        router: the host may start it without a model, as a router.
        in_place: the host's own server is at ``place`` still, and is to be kept as ``original``.
    """
    from .dropin.note import Note
    from .install.operations import CopyFile, StandIn, WriteFile

    note = Note(
        host=host,
        original=original,
        python=tools.python,
        home=tools.home,
        mode=mode,
        router=router,
        facts=dict(facts or {}),
    )
    # The note first: beside the host's own server it means nothing, a drop-in needs it.
    told = WriteFile(note.path_for(place), note.to_bytes(), mode=0o644)
    if in_place and original is not None:
        return told, StandIn(tools.dropin, place, place.parent / original)
    return told, CopyFile(tools.dropin, place, mode=0o755)
