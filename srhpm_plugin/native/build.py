"""Building the patched server: source, hooks, CMake, and the finished build moved into place."""

from __future__ import annotations

import errno
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import filelock

from ..errors import UserError
from ..home import cache_dir
from . import abi, ninja, source, toolchain
from .hooks import Applied, apply_hooks, load_hooks
from .locate import EXE, INFO_NAME, build_info, builds_dir, local_build
from .recipe import PROGRAMS, TESTS, Recipe, fingerprint, native_dir, our_files

# Measured: sources 190 MB, objects and programs 350 MB; a portable build three times that.
_NEED_MIB = {False: 900, True: 2500}

Say = Callable[[str], None]
OnStep = Callable[[int, int], None]


def work_dir(recipe: Recipe) -> Path:
    """Sources and objects of a build; kept, so that the next build is incremental."""
    return cache_dir() / "native" / recipe.name


def build(
    recipe: Recipe,
    *,
    say: Say,
    on_step: OnStep,
    jobs: int | None = None,
    force: bool = False,
    clean: bool = False,
    use: bool = True,
) -> Path:
    """Builds and installs below the data folder. Returns the build's folder.

    With ``use`` it is then the build in use; without, only where there is no other.

    Interrupted at any point, a rerun goes on where it stopped. A second build of the same kind
    waits for the first.

    Raises:
        UserError: anything that keeps the build from succeeding, in one line.
    """
    for accelerator in toolchain.TOOLKITS:
        if getattr(recipe, accelerator):
            toolchain.require_toolkit(accelerator)
    work = work_dir(recipe)
    with _writable(work.parent), _lock(work, say):
        if clean:
            shutil.rmtree(work, ignore_errors=True)
        tools = toolchain.find(say)
        source_hash = _source_hash(recipe, say)
        key = fingerprint(recipe, tools, source_hash)
        installed = builds_dir() / recipe.name
        if not force and not clean and build_info(installed).get("fingerprint") == key:
            _use(installed, use)
            say("already built from these sources")
            return installed
        _check_space(work, recipe)
        tree = _prepare_source(recipe, work, say)
        hooks = apply_hooks(tree, load_hooks(native_dir() / "hooks.toml"), recipe.tag)
        _copy_ours(work / "srhpm")
        log = work / "build.log"
        log.unlink(missing_ok=True)
        objects = work / "build"
        env = {"NINJA_STATUS": ninja.NINJA_STATUS}
        if tools.ccache:
            # the same file compiled in another folder is the same to the cache
            env |= {"CCACHE_BASEDIR": str(work), "CCACHE_NOHASHDIR": "1"}
        say("configuring")
        configure = [str(tools.cmake), "-G", "Ninja", "-S", str(work / "srhpm"), "-B", str(objects)]
        ninja.run(
            [*configure, *recipe.cmake_options(tools, tree)], log, env, "configuring the server"
        )
        compile_argv = [str(tools.cmake), "--build", str(objects), "--target", "srhpm"]
        if jobs:
            compile_argv += ["--parallel", str(jobs)]
        ninja.run(compile_argv, log, env, "building the server", on_step)
        info = _describe(recipe, key, source_hash, hooks, tools)
        info["architectures"] = architectures(tree)
        with suppress(UserError):  # a tree of the user's may have other headers
            info["abi"] = asdict(abi.of_tree(tree))
        _install(objects / "bin", installed, info)
        _use(installed, use)
        return installed


_FREE_SPACE = "free some space, then run it again"
_OTHER_FOLDER = "make the folder writable, or move our state with SRHPM_HOME=DIR"
_REMEDIES = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EACCES: _OTHER_FOLDER,
    errno.EPERM: _OTHER_FOLDER,
    errno.EROFS: _OTHER_FOLDER,
    errno.ENOTDIR: _OTHER_FOLDER,
    errno.EEXIST: _OTHER_FOLDER,
}


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(
            "cannot build the server",
            f"{error.strerror or error}: {error.filename or folder}",
            _REMEDIES.get(error.errno or 0, "mend that, then run it again"),
        ) from None


@contextmanager
def _lock(work: Path, say: Say) -> Iterator[None]:
    lock = filelock.FileLock(work.with_name(work.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        say("another build is running, waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_space(work: Path, recipe: Recipe) -> None:
    if (work / "build").is_dir():
        return  # most of it is there already
    need = _NEED_MIB[recipe.portable]
    free = shutil.disk_usage(work.parent).free >> 20
    if free < need:
        raise UserError(
            "cannot build the server",
            f"{work.parent} has {free} MiB free and the build needs {need}",
            "free some space, or move our state with SRHPM_HOME=DIR",
        )


def _source_hash(recipe: Recipe, say: Say) -> str:
    if recipe.source is not None:
        return f"tree {recipe.source}"
    known = source.expected_sha256(recipe.tag)
    return known or source.sha256(source.fetch(recipe.tag, say))


def _prepare_source(recipe: Recipe, work: Path, say: Say) -> Path:
    """The pristine or already patched llama.cpp tree of this work folder."""
    tree = work / "llama.cpp"
    if recipe.source is not None:
        if not (recipe.source / "ggml" / "src" / "ggml.c").is_file():
            raise UserError(
                "cannot build the server",
                f"{recipe.source} is no llama.cpp source tree",
                "name the folder that holds CMakeLists.txt and ggml/",
            )
        # The user's tree stays as it is: hooks go into a copy, made anew each time.
        shutil.rmtree(tree, ignore_errors=True)
        say("copying the source tree")
        shutil.copytree(recipe.source, tree, ignore=shutil.ignore_patterns(".git", "build*"))
        return tree
    if not (tree / "CMakeLists.txt").is_file():
        archive = source.fetch(recipe.tag, say)
        say("extracting the source")
        source.extract(archive, tree)
    return tree


def _copy_ours(target: Path) -> None:
    """Our native sources beside the tree; unchanged files keep their time stamps."""
    wanted = our_files()
    for path in wanted:
        content = (native_dir() / path).read_bytes()
        copy = target / path
        if not copy.is_file() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    for path in [p for p in target.rglob("*") if p.is_file()]:
        if path.relative_to(target) not in wanted:
            path.unlink()


def _describe(
    recipe: Recipe,
    key: str,
    source_hash: str,
    hooks: list[Applied],
    tools: toolchain.Toolchain,
) -> dict[str, object]:
    return {
        "llama_cpp_tag": f"b{recipe.tag}",
        "source_sha256": source_hash,
        "portable": recipe.portable,
        "accelerators": [name for name in toolchain.TOOLKITS if getattr(recipe, name)],
        "compiler": tools.cxx_version,
        "hooks": [asdict(hook) for hook in hooks],
        "fingerprint": key,
    }


_ARCHITECTURE = re.compile(r'\{\s*LLM_ARCH_\w+\s*,\s*"([^"]+)"\s*\}')


def architectures(tree: Path) -> list[str]:
    """The model architectures that a llama.cpp tree can load, as GGUF headers name them; empty
    where its table is not found."""
    try:
        text = (tree / "src" / "llama-arch.cpp").read_text("utf-8", "replace")
    except OSError:
        return []
    return [name for name in _ARCHITECTURE.findall(text) if name not in ("clip", "(unknown)")]


def _install(built: Path, folder: Path, info: dict[str, object]) -> None:
    """Copies programs and libraries to ``folder`` through a rename; a running server of the build
    before keeps its files, as they are replaced and not overwritten."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "bin").mkdir(parents=True)
    for path in sorted(built.iterdir()):
        program = path.name.removesuffix(EXE) if EXE else path.name
        library = ".so" in path.name or path.suffix in (".dll", ".dylib", ".metallib")
        if program in PROGRAMS + TESTS or library:
            shutil.copy2(path, partial / "bin" / path.name, follow_symlinks=False)
    (partial / INFO_NAME).write_text(json.dumps(info, indent=1), "utf-8")
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    try:
        if folder.exists():
            folder.replace(old)
        partial.replace(folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.replace(folder)
        if sys.platform == "win32":
            raise UserError(
                "cannot replace the server", f"it is in use ({error})", "stop it, then run it again"
            ) from None
        raise
    shutil.rmtree(old, ignore_errors=True)


def _use(folder: Path, always: bool) -> None:
    if not always and local_build() is not None:
        return
    pointer = builds_dir() / "current"
    partial = pointer.with_name("current.partial")
    partial.write_text(folder.name + "\n", "utf-8")
    partial.replace(pointer)
