"""Ollama's side of the contract with ``llama-server``, as its source has it (0.30 and later).

``discover/llama_server.go`` (two starts to find devices), ``llm/llama_server.go`` (arguments,
environment, log, health, requests) and ``llm/status.go`` (what counts as an error in the log).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

ERRORS = (
    "mlx:", "MLX:", "panic:", "fatal error:", "error:", "Error:", "CUDA error", "ROCm error",
    "cudaMalloc failed", '"ERR"', "error loading model", "GGML_ASSERT",
    "Deepseek2 does not support K-shift", "signal arrived during cgo execution",
    "llama_init_from_model:",
)  # fmt: skip
OUT_OF_MEMORY = (
    "out of memory", "out of device memory", "cudamalloc failed", "hipmalloc failed",
    "failed to allocate", "allocation failed", "not enough memory", "insufficient memory",
    "vk_error_out_of_device_memory", "erroroutofmemory",
)  # fmt: skip
BUFFER = re.compile(
    r"(?:^|\n)[^\n:]*?([A-Za-z_][A-Za-z0-9_]*):[ \t\n\r\f\v]+(\S+)\s+(model|KV|compute|output|RS)"
    r"\s+buffer size\s*=\s*([\d.]+)\s*MiB",
    re.MULTILINE,
)
DEVICE = re.compile(r"^\s+(.+?):\s+(.+?)\s+\((\d+)\s+MiB,\s+(\d+)\s+MiB\s+free\)")
CHUNK = 32 * 1024  # what Go's io.Copy reads at most at once


def status_error(line: str) -> str | None:
    """What Ollama would show its user as the server's error."""
    if any(e in line for e in ERRORS) or any(e in line.lower() for e in OUT_OF_MEMORY):
        return line
    return None


class Log:
    """What a runner wrote, taken apart as it comes: chunk by chunk, lines within a chunk."""

    def __init__(self) -> None:
        self.text = ""
        self.errors: list[str] = []
        self.buffers: dict[tuple[str, str, str], float] = {}

    def take(self, chunk: str) -> None:
        self.text += chunk
        self.errors += filter(None, map(status_error, chunk.split("\n")))
        for component, backend, kind, mib in BUFFER.findall(chunk):
            self.buffers[component, backend, kind] = float(mib)

    def on_gpu(self) -> float:
        """MiB that Ollama counts as VRAM."""
        return sum(
            mib
            for (_, backend, _), mib in self.buffers.items()
            if backend not in ("CPU", "BLAS")
            and not backend.startswith("CPU_")
            and not backend.endswith("_Host")
        )


class Runner:
    """A model's server: started, waited for, asked, killed."""

    def __init__(self, argv: list[str], env: Mapping[str, str], port: int) -> None:
        self.log = Log()
        self.marker = ""  # stands for an image in a prompt
        self.url = f"http://127.0.0.1:{port}"
        # keep-alives are off, and no proxy is asked
        self.http = httpx.Client(
            base_url=self.url, trust_env=False, timeout=120, headers={"Connection": "close"}
        )
        self.process = subprocess.Popen(
            argv, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while chunk := os.read(self.process.stdout.fileno(), CHUNK):
            self.log.take(chunk.decode("utf-8", "replace"))

    def wait_until_running(self, seconds: float = 90.0) -> list[object]:
        """Polls as ``WaitUntilRunning`` does; the states seen on the way."""
        states: list[object] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.text[-3000:]
            try:
                answer = self.http.get("/health", timeout=2.0)
                body = answer.json()
            except (httpx.HTTPError, ValueError):
                states.append("not responding")
            else:
                if answer.status_code == 200 and body.get("status") == "ok":
                    return states
                assert answer.status_code == 503, body
                assert body["error"]["message"] == "Loading model"
                states.append("loading")
            time.sleep(0.25)
        raise AssertionError("not healthy: " + self.log.text[-3000:])

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """A streamed answer, read as strictly as Ollama does."""
        with self.http.stream("POST", path, json=body) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if not line or line.startswith(":"):
                    continue
                assert len(line) < 8 << 20
                data = line.removeprefix("data: ")
                if data != "[DONE]":
                    yield json.loads(data)  # an `event:` line would end Ollama's reading

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._reader.join(30)
        self.http.close()


class Ollama:
    """``ollama serve`` for one copy, without GPUs."""

    def __init__(self, lib: Path, port: Callable[[], int]) -> None:
        self.lib, self._port = lib, port
        self.runners: list[Runner] = []

    def _env(self, extra: Mapping[str, str]) -> dict[str, str]:
        """``SetupLlamaServerCommandEnv``: the folders of libraries, and the first GPU library."""
        gpu = self.lib / "cuda_v13"
        inherited = os.environ.get("LD_LIBRARY_PATH", "")
        folders = [str(self.lib), str(gpu), *filter(None, inherited.split(":"))]
        return {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(folders),
            "GGML_BACKEND_PATH": str(gpu / "libggml-cuda.so"),
            **extra,
        }

    @property
    def server(self) -> Path:
        """The one that ``FindLlamaServer`` finds."""
        return self.lib / "llama-server"

    def discover(self) -> list[str]:
        """Both starts of the discovery; the devices found."""
        argv = [str(self.server), "--port", "51234", "--host", "127.0.0.1"]
        argv += ["--no-webui", "--offline", "--verbose"]
        first = subprocess.Popen(
            argv, env=self._env({}), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        timer = threading.Timer(30, first.kill)
        timer.start()
        assert first.stderr is not None
        try:
            assert any("system_info:" in line for line in first.stderr)
        finally:
            timer.cancel()
            first.kill()
            first.wait(30)
            first.stderr.close()
        second = subprocess.run(
            [str(self.server), "--list-devices", "--offline", "--verbose"],
            env=self._env({}), capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        lines = (second.stdout + second.stderr).split("\n")
        return [m[1] for m in map(DEVICE.match, lines) if m]

    def arguments(
        self, model: Path, port: int, num_batch: int = 512, jinja: bool = False, **more: Any
    ) -> list[str]:
        """``startLlamaServer``, in its order."""
        argv = [str(self.server), "--model", str(model), "--port", str(port)]
        argv += ["--host", "127.0.0.1", "--no-webui", "--offline"]
        parallel = more.get("num_parallel", 1)
        argv += ["-c", str(more.get("num_ctx", 2048) * parallel), "-np", str(parallel)]
        argv += ["--log-verbosity", "4", "--no-log-prefix", "--no-log-timestamps"]
        if not jinja:
            argv += ["--no-jinja", "--chat-template", "chatml"]
        if projector := more.get("projector"):
            argv += ["--mmproj", str(projector)]
            if more.get("projector_in_ram"):  # where a GPU has no room for it
                argv += ["--no-mmproj-offload"]
        argv += more.get("draft", [])
        argv += more.get("image_tokens", [])  # of Qwen's vision models
        for adapter in more.get("adapters", []):
            argv += ["--lora", str(adapter)]
        argv += ["--load-mode", "none"]
        if kind := more.get("kv_cache_type"):
            argv += ["--cache-type-k", kind, "--cache-type-v", kind]
        argv += ["--flash-attn", "auto"]
        if more.get("embedding"):
            argv += ["--embedding"]
        argv += ["-b", str(num_batch), "-ub", str(num_batch)]
        if "num_gpu" in more:
            argv += ["-ngl", str(more["num_gpu"])]
        if "num_thread" in more:
            argv += ["-t", str(more["num_thread"])]
        return [*argv, "--context-shift", "--keep", "4"]

    def start(self, model: Path, **options: Any) -> Runner:
        """A runner for a model with these options."""
        port = self._port()
        marker = f"<__ollama_media_{os.urandom(16).hex()}__>"
        env = {"LLAMA_MEDIA_MARKER": marker}
        projector = options.get("projector")
        if projector and not options.get("projector_in_ram"):
            # its bytes and 1 GiB more are to stay free on the GPU
            env["LLAMA_ARG_FIT_TARGET"] = str((projector.stat().st_size + (1 << 30)) >> 20)
        argv = self.arguments(model, port, **options)
        self.runners.append(Runner(argv, self._env(env), port))
        self.runners[-1].marker = marker
        return self.runners[-1]
