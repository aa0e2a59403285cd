"""The rows of docs/hosts/ollama.md on a real Ollama, with its server's processes looked at.

    python tests/ollama_real.py OLLAMA MODEL.gguf DRAFTER.gguf [--embedding EMBEDDING.gguf]

OLLAMA is a folder with ``bin/ollama`` and ``lib/ollama``; a copy of it is made in a folder of its
own with a store and a state of SR-HPM of their own, so nothing of the user's is touched. MODEL is
one that gains (the wide model), DRAFTER its drafter (SmolLM2-135M-Instruct). Prints a line for each
row and what was seen; exit code 1 if one is not as the page says. Linux.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from crash import state

from srhpm_plugin.native.locate import builds_dir

SERVER = "llama-server"


class Real:
    """A copy of Ollama with a store, running; and SR-HPM with a state of its own.

    Attributes:
        root: the copy.
        url: where it answers.
    """

    def __init__(self, ollama: Path, folder: Path) -> None:
        self.root, self.folder = folder / "ollama", folder
        shutil.copytree(ollama, self.root, symlinks=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OLLAMA_", "SRHPM_"))},
            "HOME": str(folder / "home"),
            "OLLAMA_HOST": self.url,
            "OLLAMA_MODELS": str(folder / "store"),
            "OLLAMA_NO_CLOUD": "1",
            "OLLAMA_MAX_LOADED_MODELS": "1",
            "SRHPM_HOME": str(folder / "srhpm"),
        }
        (folder / "home").mkdir()
        (folder / "srhpm" / "data").mkdir(parents=True)
        (folder / "srhpm" / "data" / "native").symlink_to(builds_dir())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **env: str) -> None:
        """Starts Ollama and waits until it answers."""
        log = (self.folder / "ollama.log").open("ab")
        self._process = subprocess.Popen(
            [str(self.root / "bin" / "ollama"), "serve"],
            env={**self.env, **env}, stdout=log, stderr=log,
        )  # fmt: skip
        until(lambda: httpx.get(self.url).status_code == 200, 30)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def restart(self, **env: str) -> None:
        self.stop()
        self.start(**env)

    def ollama(self, *args: str) -> str:
        return self.run([str(self.root / "bin" / "ollama"), *args])

    def srhpm(self, *args: str) -> str:
        return self.run([sys.executable, "-m", "srhpm_plugin", *args])

    def run(self, argv: list[str]) -> str:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{argv[1:]}: {done.stdout} {done.stderr}")
        return done.stdout + done.stderr

    def post(self, route: str, seconds: float = 600, **body: Any) -> httpx.Response:
        return httpx.post(self.url + route, json=body, timeout=seconds)

    def answer(
        self, model: str, n: int = 16, seconds: float = 600, prompt: str = "", **options: Any
    ) -> dict[str, Any]:
        """A whole answer of ``/api/generate`` at temperature 0."""
        prompt = prompt or "The capital of France is"
        body: dict[str, Any] = {"model": model, "prompt": prompt, "stream": False}
        body["options"] = {"temperature": 0, "num_predict": n, **options}
        response = self.post("/api/generate", seconds, **body)
        response.raise_for_status()
        answered: dict[str, Any] = response.json()
        return answered

    def servers(self) -> dict[int, str]:
        """The running model servers below this copy: ``ours`` or ``ollama``."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                exe = str((entry / "exe").readlink())
                of_here = f"OLLAMA_HOST={self.url}\0".encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            if of_here and Path(exe).name.startswith(SERVER) and "--model" in self.argv(entry.name):
                found[int(entry.name)] = "ollama" if str(self.root) in exe else "ours"
        return found

    def argv(self, pid: int | str) -> list[str]:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]

    def option(self, name: str) -> str:
        """The last value of an option of the only server."""
        (pid,) = self.servers()
        argv = self.argv(pid)
        return [argv[i + 1] for i, word in enumerate(argv) if word == name][-1]

    def ran(self) -> str:
        """Which server runs: ``ours`` or ``ollama``."""
        (which,) = self.servers().values()
        return which

    def unload(self, model: str) -> None:
        self.ollama("stop", model)
        until(lambda: not self.servers(), 20)

    def create(self, name: str, text: str) -> None:
        modelfile = self.folder / "Modelfile"
        modelfile.write_text(text)
        self.ollama("create", name, "-f", str(modelfile))

    def models(self) -> list[str]:
        return sorted(m["name"] for m in httpx.get(self.url + "/api/tags").json()["models"])

    def launches(self) -> list[dict[str, Any]]:
        """What ``status`` tells of launches, the last first."""
        found: list[dict[str, Any]] = json.loads(self.srhpm("status", "--json"))["launches"]
        return found

    def seen(self) -> Mapping[str, object]:
        """All of the copy, and of the store its manifests and the blobs they name, contents as
        hashes. Ollama itself sets the times of a blob that a new model shares, and leaves uploaded
        files that it has taken apart until it prunes them: neither counts."""
        copy = {name: _hashed(at) for name, at in state(self.root).items()}
        store = state(self.folder / "store")
        named = b"".join(bytes(at[3]) for at in store.values() if _is_manifest(at))
        return copy | {
            f"store/{name}": _hashed(at)[:4]
            for name, at in store.items()
            if not name.startswith("blobs/") or name[6:].replace("-", ":").encode() in named
        }


def _is_manifest(at: tuple[object, ...]) -> bool:
    return at[0] == "file" and isinstance(at[3], bytes) and at[3].startswith(b'{"schemaVersion"')


def _hashed(at: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(hashlib.sha256(x).hexdigest() if isinstance(x, bytes) else x for x in at)


def until(holds: Any, seconds: float) -> float:
    """Waits until something holds (errors of connections count as no); how long it took."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        try:
            if holds():
                return time.monotonic() - begun
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not after {seconds} s")


@contextmanager
def real(ollama: Path) -> Iterator[Real]:
    """An Ollama that is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="srhpm-ollama-") as folder:
        it = Real(ollama, Path(folder))
        try:
            it.start()
            yield it
        finally:
            it.stop()


def main() -> int:
    from ollama_real_rows import ROWS, Files

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ollama", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("--embedding", type=Path, help="an embedding model")
    args = parser.parse_args()
    files = Files(args.model.resolve(), args.drafter.resolve(), args.embedding)
    failed = 0
    with real(args.ollama.resolve()) as it:
        print(it.ollama("--version").strip())
        for row in ROWS:
            begun, name = time.monotonic(), (row.__doc__ or "").rstrip(".")
            try:
                said = row(it, files)
            except Exception:
                failed += 1
                said = "NOT SO\n" + traceback.format_exc()
            print(f"| {name} | {said} | {time.monotonic() - begun:.0f} s", flush=True)
        if failed:
            print((it.folder / "ollama.log").read_text(errors="replace")[-3000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
