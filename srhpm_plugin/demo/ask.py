"""One question through the official ``openai`` client, streamed as it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UserError


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        text: the whole answer.
        tokens: its length, as the server counts.
        tok_s: decode speed as the server measured it; ``None`` when it does not say.
        drafted, accepted: drafted tokens and how many of them were kept.
    """

    text: str
    tokens: int
    tok_s: float | None
    drafted: int
    accepted: int


def require_client() -> None:
    """Makes sure that the client is there, before minutes are spent.

    Raises:
        UserError: the package is not installed.
    """
    try:
        import openai  # noqa: F401
    except ImportError as error:
        raise UserError(
            "cannot ask a question",
            "the openai package is not installed",
            'type: pip install "srhpm-plugin[demo]"',
        ) from error


def ask(base_url: str, question: str, tokens: int, on_text: Callable[[str], None]) -> Answer:
    """Asks greedily and passes the answer on piece by piece.

    Args:
        base_url: the server, without ``/v1``.
        question: the user's message.
        tokens: limit of the answer.
        on_text: called with each piece of text.

    Raises:
        UserError: the server refused or broke off.
    """
    import openai

    # No proxy from the environment: the server is on this machine.
    client = openai.OpenAI(
        base_url=f"{base_url}/v1",
        api_key="none",
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    )
    pieces: list[str] = []
    timings: dict[str, Any] = {}
    try:
        with (
            client,
            client.chat.completions.create(
                model="demo",
                messages=[{"role": "user", "content": question}],
                temperature=0,
                max_tokens=tokens,
                stream=True,
            ) as stream,
        ):
            for chunk in stream:
                # llama-server adds its timings to the last piece; the client keeps what it does
                # not know.
                timings = getattr(chunk, "timings", None) or timings
                for choice in chunk.choices:
                    if choice.delta.content:
                        pieces.append(choice.delta.content)
                        on_text(choice.delta.content)
    except openai.OpenAIError as error:
        raise UserError(
            "the question was not answered", str(error), "see the server's log"
        ) from error
    return Answer(
        text="".join(pieces),
        tokens=int(timings.get("predicted_n", len(pieces))),
        tok_s=float(timings["predicted_per_second"]) if "predicted_per_second" in timings else None,
        drafted=int(timings.get("draft_n", 0)),
        accepted=int(timings.get("draft_n_accepted", 0)),
    )
