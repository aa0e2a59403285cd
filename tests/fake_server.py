"""A stand-in for llama-server that does what a test tells it. Run as a program.

Tokens are a pure function of the prompt, so two of them agree unless one is told to differ.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("-m", "--model")
parser.add_argument("-md", "--model-draft")
parser.add_argument("--print", dest="lines", action="append", default=[])
parser.add_argument("--load-seconds", type=float, default=0.0)
parser.add_argument("--die-loading", type=int, help="signal while loading, 0: exit code 1")
parser.add_argument("--die-at", type=int, help="kill itself at this completion request, from 1")
parser.add_argument("--bind-fails", type=Path, help="counts down the number in this file")
parser.add_argument("--stubborn", action="store_true", help="ignores SIGTERM and standard input")
parser.add_argument("--grandchild", type=Path, help="starts a sleeper, writes its pid here")
parser.add_argument("--drafted", type=int, default=0)
parser.add_argument("--accepted", type=int, default=0)
parser.add_argument("--differ-at", type=int, help="another token at this position")
parser.add_argument("--differ-in", default="", help="only in prompts holding this")
parser.add_argument("--short", type=int, default=0, help="this many tokens less than asked for")
parser.add_argument("--tok-s", type=float, default=100.0)
parser.add_argument("--journal", type=Path, help="one JSON line per completion request")
parser.add_argument("--name", default="fake")
parser.add_argument("--dump-env", type=Path)
parser.add_argument("--log-bytes", type=int, default=0)
parser.add_argument("--version", action="store_true")
options, _ = parser.parse_known_args()

if options.version:
    print("version: 0.1.2-dev (build 11434, commit 0123456789)")
    sys.exit(0)
if options.dump_env:
    options.dump_env.write_text(json.dumps({"env": dict(os.environ), "argv": sys.argv}))
for line in options.lines:
    print(line, flush=True)
for start in range(0, options.log_bytes, 100):
    print(f"{start:09d} " + "x" * 89, flush=True)
if options.bind_fails and int(options.bind_fails.read_text()) > 0:
    options.bind_fails.write_text(str(int(options.bind_fails.read_text()) - 1))
    print("0.00.003.391 E srv         start: couldn't bind HTTP server socket", flush=True)
    sys.exit(1)
if options.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.grandchild:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    options.grandchild.write_text(str(sleeper.pid))

began = time.monotonic()
counter = itertools.count(1)
lock = threading.Lock()


def tokens_for(prompt: str | list[int], n: int) -> list[int]:
    seed = zlib.crc32(str(prompt).encode())
    tokens = [(seed >> (i % 24)) % 1000 + i for i in range(n)]
    at = options.differ_at
    if at is not None and at < n and options.differ_in in str(prompt):
        tokens[at] += 5000
    return tokens[: max(n - options.short, 0)]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def send(self, status: int, body: object) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.send(
                200,
                "# HELP x\nllamacpp:tokens_predicted_total 30\n"
                "llamacpp:tokens_predicted_seconds_total 0.5\n"
                "llamacpp:spec_decode_num_draft_tokens_total 8\n"
                "llamacpp:spec_decode_num_accepted_tokens_total 6\n",
            )
        elif time.monotonic() - began < options.load_seconds:
            self.send(503, {"error": {"message": "Loading model", "code": 503}})
        else:
            self.send(200, {"status": "ok"})

    def do_POST(self) -> None:
        key = os.environ.get("LLAMA_API_KEY")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            self.send(401, {"error": {"message": "Invalid API Key", "code": 401}})
        elif self.path == "/apply-template":
            self.send(200, {"prompt": f"<user>{body['messages'][0]['content']}</user>"})
        elif self.path == "/detokenize":
            self.send(200, {"content": "".join(f"<{t}>" for t in body["tokens"])})
        elif body["prompt"] == "too long":
            self.send(400, {"error": {"message": "exceeds the available context size"}})
        else:
            with lock:
                request = next(counter)
                if options.journal:
                    with options.journal.open("a") as file:
                        file.write(json.dumps({"name": options.name, **body}) + "\n")
                if request == options.die_at:
                    print("0.01.000.000 E ggml_abort: everything broke", flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
            tokens = tokens_for(body["prompt"], body["n_predict"])
            answer = {
                "content": "".join(f"<{t}>" for t in tokens),
                "tokens": tokens,
                "tokens_predicted": len(tokens),
                "timings": {
                    "predicted_n": len(tokens),
                    "predicted_ms": 1000 * len(tokens) / options.tok_s,
                    "predicted_per_second": options.tok_s,
                },
            }
            if options.drafted:
                answer["timings"]["draft_n"] = options.drafted
                answer["timings"]["draft_n_accepted"] = options.accepted
            if body.get("n_probs"):
                answer["completion_probabilities"] = [
                    {
                        "top_logprobs": [
                            {"id": t, "token": f"<{t}>", "logprob": -0.5},
                            {"id": t + 5000, "token": f"<{t + 5000}>", "logprob": -0.75},
                        ]
                    }
                    for t in tokens
                ]
            self.send(200, answer)


def watch_stdin() -> None:
    for line in sys.stdin:
        if line.startswith("cmd_router_to_child:exit"):
            break
    os._exit(0)


server = ThreadingHTTPServer((options.host, options.port), Handler)
if options.die_loading is not None:
    if options.die_loading:
        os.kill(os.getpid(), options.die_loading)
        time.sleep(5)
    sys.exit(1)
if not options.stubborn and "LLAMA_SERVER_ROUTER_PORT" in os.environ:
    threading.Thread(target=watch_stdin, daemon=True).start()
with contextlib.suppress(KeyboardInterrupt):
    server.serve_forever()
