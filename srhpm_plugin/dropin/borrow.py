"""The GPU libraries of a host, for our server: which there are, and whether ours may load them.

Only a server built for the host's own can (``native build --match``): a library of another
llama.cpp tag has another ABI. The server checks again what a library shows
(``native/overlay/ggml/srhpm-host-backend.h``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..native.locate import build_info, host_build
from .gpu import is_gpu_library

VARIABLE = "SRHPM_BACKENDS"
# The host's way to name the library, which our server would only comment on.
NAMED = "GGML_BACKEND_PATH"
# Where the libraries find what they need; the drop-in keeps these from our interpreter.
_SEARCH = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_ENDINGS = (".so", ".dll", ".dylib")


class NotLent(Exception):
    """Our server must not load them; the message is the reason, one clause."""


def lent(
    host: str, original: Path, env: Mapping[str, str], server: Path
) -> dict[str, str | None] | None:
    """What to change in our server's environment so that it loads the host's GPU libraries; a
    variable that is ``None`` is taken away. ``None`` as a whole: the host has no such library.

    Args:
        host: the host's name.
        original: its own server.
        env: its environment.
        server: ours.

    Raises:
        NotLent: see there.
    """
    libraries = list(_libraries(original, env))
    if not libraries:
        return None
    tag = _tag(host, original, server)
    for library in libraries:
        if not library.is_relative_to(original.parent.resolve()):
            raise NotLent(f"{library} lies outside its folder, so nobody knows its llama.cpp tag")
        if os.pathsep in str(library):
            raise NotLent(f"the path {library} cannot be passed on")
    return {VARIABLE: f"{tag}:{os.pathsep.join(map(str, libraries))}", NAMED: None}


def files_of(changes: Mapping[str, str | None]) -> list[Path]:
    """The libraries in what :func:`lent` returned."""
    named = (changes.get(VARIABLE) or "").partition(":")[2]
    return [Path(file) for file in named.split(os.pathsep) if file]


def _libraries(original: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """The library that the host names, else those beside its server, which it would load."""
    named = env.get(NAMED)
    if named:
        library = Path(named)
        if is_gpu_library(library) and library.is_file():
            yield library.resolve()
        return
    try:
        beside = sorted(original.parent.iterdir())
    except OSError:
        return
    for path in beside:
        if is_gpu_library(path) and path.suffix in _ENDINGS and path.is_file():
            yield path.resolve()


def _tag(host: str, original: Path, server: Path) -> str:
    """The tag whose ABI both servers have."""
    from ..native import match  # not on the short way, see gpumemory.py

    info = build_info(server.parent.parent)
    ours = str(info.get("llama_cpp_tag"))
    said = match.ask(original)
    if said is None:
        raise NotLent("it does not say its llama.cpp version")
    made_for = host_build(host)
    same_server = (
        made_for is not None
        and made_for.folder.resolve() == server.parent.parent.resolve()
        and made_for.says == said.line
    )
    if not same_server and (said.tag is None or f"b{said.tag}" != ours):
        theirs = f"b{said.tag}" if said.tag else said.line.removeprefix("version: ")
        raise NotLent(f"its llama.cpp is {theirs}, ours is {ours}")
    if not info.get("portable"):
        raise NotLent("ours is one file that loads no libraries")
    return ours


@contextmanager
def passed_on(changes: Mapping[str, str | None], env: Mapping[str, str]) -> Iterator[None]:
    """Servers that this process starts meanwhile see the host's GPU as ours will.

    Args:
        changes: from :func:`lent`.
        env: the host's environment.
    """
    wanted = {**{name: env[name] for name in _SEARCH if name in env}, **changes}
    before = {name: os.environ.get(name) for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
