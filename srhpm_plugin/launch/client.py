"""Asking a llama-server for greedy completions, and what it says about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx

from ..errors import UserError

_SEED = 1  # greedy needs none; fixed all the same, so that a sampler slipping in would show


@dataclass(frozen=True)
class Candidate:
    """A token the model considered, with the natural logarithm of its probability."""

    token: int
    text: str
    logprob: float


@dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
        tokens: the ids generated.
        text: the same as text.
        decode_ms: time the server spent on generating, prompt not included.
        tok_s: the server's own tokens per second.
        drafted, accepted: drafted tokens and how many of them were kept; 0 without speculation.
        candidates: per position the likeliest tokens, best first, when asked for.
        timings: all that the server said of its times.
    """

    tokens: tuple[int, ...]
    text: str
    decode_ms: float
    tok_s: float
    drafted: int
    accepted: int
    candidates: tuple[tuple[Candidate, ...], ...] = ()
    timings: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Client:
    """Talks to one server. Use as a context manager.

    Args:
        base_url: the server.
        api_key: when it wants one.
        timeout: seconds one answer may take.
    """

    def __init__(self, base_url: str, api_key: str | None = None, timeout: float = 3600.0) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # No proxy from the environment: the server is on this machine.
        self._http = httpx.Client(
            base_url=base_url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=10.0),
            trust_env=False,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        response = self._http.post(path, json=body)
        if response.status_code != 200:
            raise UserError(
                f"the server refused {path}", _reason(response), "shorten the prompt or raise --ctx"
            )
        answer = response.json()
        if not isinstance(answer, dict):
            raise UserError(f"cannot use the answer to {path}", "not a JSON object")
        return answer

    def chat_prompt(self, text: str) -> str:
        """``text`` as a user's message in the model's chat template; as it is when the server
        cannot apply one."""
        body = {"messages": [{"role": "user", "content": text}]}
        response = self._http.post("/apply-template", json=body)
        if response.status_code != 200:
            return text
        return str(response.json()["prompt"])

    def complete(
        self,
        prompt: str | Sequence[int],
        n: int,
        *,
        n_probs: int = 0,
        ignore_eos: bool = False,
    ) -> Completion:
        """Greedy continuation of ``prompt`` by at most ``n`` tokens, nothing taken from a cache.

        Args:
            prompt: raw text, whose special tokens are read as such, or ids of tokens.
            n: token limit.
            n_probs: how many candidates to report per position.
            ignore_eos: go on to ``n`` tokens whatever the model wants.

        Raises:
            UserError: the server refused, or answered without token ids.
        """
        answer = self._post(
            "/completion",
            {
                "prompt": prompt if isinstance(prompt, str) else list(prompt),
                "n_predict": n,
                "temperature": 0,
                "seed": _SEED,
                "return_tokens": True,
                "cache_prompt": False,
                "n_probs": n_probs,
                "ignore_eos": ignore_eos,
                "stream": False,
            },
        )
        timings = answer.get("timings") or {}
        tokens = tuple(int(token) for token in answer.get("tokens") or ())
        if not tokens and answer.get("tokens_predicted", 0) > 1:
            raise UserError(
                "cannot compare tokens",
                "the server does not return token ids",
                "use llama.cpp b10488 or newer",
            )
        return Completion(
            tokens=tokens,
            text=str(answer.get("content", "")),
            decode_ms=float(timings.get("predicted_ms", 0.0)),
            tok_s=float(timings.get("predicted_per_second") or 0.0),
            drafted=int(timings.get("draft_n", 0)),
            accepted=int(timings.get("draft_n_accepted", 0)),
            candidates=tuple(
                tuple(
                    Candidate(int(c["id"]), str(c["token"]), float(c["logprob"]))
                    for c in position.get("top_logprobs") or ()
                )
                for position in answer.get("completion_probabilities") or ()
            ),
            timings=timings,
        )

    def text_of(self, token: int) -> str:
        """A token's text."""
        return str(self._post("/detokenize", {"tokens": [token]}).get("content", ""))

    def metrics(self) -> dict[str, float]:
        """The server's counters by name, without their ``llamacpp:``; empty when it has none."""
        response = self._http.get("/metrics")
        found: dict[str, float] = {}
        if response.status_code != 200:
            return found
        for line in response.text.splitlines():
            name, _, value = line.partition(" ")
            if line.startswith("#") or "{" in name:
                continue
            try:
                found[name.partition(":")[2] or name] = float(value)
            except ValueError:
                continue
        return found


def _reason(response: httpx.Response) -> str:
    try:
        message = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = response.text[:200]
    return f"{message} (HTTP {response.status_code})"
