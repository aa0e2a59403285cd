"""A vocabulary's tokens as people read them."""

from __future__ import annotations

from typing import Final

# tokenizer.ggml.model -> vocabularies that write each byte of a token as one printable character,
# as GPT-2 does, and those that write a space as SPACE_MARK.
_BYTES_AS_CHARACTERS: Final = frozenset(("gpt2", "hybriddna", "whitespace"))
_MARKED_SPACES: Final = frozenset(("llama", "gemma4", "t5", "bert"))
_SPACE_MARK: Final = "\N{LOWER ONE EIGHTH BLOCK}"


def _gpt2_bytes() -> dict[str, int]:
    """Character -> byte. Printable Latin-1 stands for itself, the rest for what comes after it."""
    plain = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTE_OF: Final = _gpt2_bytes()


def readable(token: bytes, model: str, limit: int = 40) -> str:
    """``token`` in quotes: ``' the'`` for GPT-2's ``Ġthe``; a part of a character as bytes.

    Args:
        token: as the file has it.
        model: ``tokenizer.ggml.model``.
        limit: most characters or bytes shown.
    """
    data = token
    if model in _BYTES_AS_CHARACTERS:
        text = token.decode("utf-8", "replace")
        # An added token is written plainly, which shows when it holds what no byte is written as.
        if all(c in _BYTE_OF for c in text):
            data = bytes(_BYTE_OF[c] for c in text)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return repr(data[:limit])
    if model in _MARKED_SPACES:
        text = text.replace(_SPACE_MARK, " ")
    return repr(text[:limit])
