"""Pictures and sounds of a message, as llama-server takes them."""

from __future__ import annotations

import base64
from typing import Any

from .errors import ApiError

# llama.cpp decodes these (stb_image, miniaudio); first bytes -> media type
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}


def part(data: bytes) -> dict[str, Any]:
    """One part of a message's content, in OpenAI's form.

    Raises:
        ApiError: 400, it is of a kind that cannot be read.
    """
    text = base64.b64encode(data).decode()
    if sound := _sound(data):
        return {"type": "input_audio", "input_audio": {"data": text, "format": sound}}
    for magic, kind in _PICTURES.items():
        if data.startswith(magic):
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{text}"}}
    what = "WebP" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else "this"
    raise ApiError(400, f"{what} is no image that can be read: send PNG, JPEG, GIF or BMP")


def _sound(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] in (b"\xfb", b"\xf3", b"\xf2")):
        return "mp3"
    return None
