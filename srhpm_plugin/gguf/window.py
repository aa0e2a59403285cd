"""Sliding-window attention: its width and the layers that use it, as llama.cpp applies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .fields import Fields

if TYPE_CHECKING:
    from .layers import Layers


class _Pattern(NamedTuple):
    """One layer in ``every`` is dense: the last of each group, or the first.

    ``window`` is the width when the header states none; 0 means "then there is no window".
    """

    every: int
    dense_first: bool = False
    window: int = 0
    fixed: bool = False  # the width is this one whatever the header states


_PATTERNS: Final = {
    "afmoe": _Pattern(4),
    "cohere2": _Pattern(4),
    "cohere2moe": _Pattern(4, dense_first=True),
    "exaone-moe": _Pattern(4, window=128),
    "exaone4": _Pattern(4, window=4096),
    "gemma-embedding": _Pattern(6),
    "gemma2": _Pattern(2, window=4096),
    "gemma3": _Pattern(6),
    "gemma3n": _Pattern(5),
    "gpt-oss": _Pattern(2),
    "laguna": _Pattern(4, dense_first=True),
    "llama4": _Pattern(4, window=8192, fixed=True),
    "mellum": _Pattern(4),
    "modern-bert": _Pattern(3, dense_first=True),
    "muse-glimmer": _Pattern(4),
    "olmo2": _Pattern(4),
    "plamo3": _Pattern(8),
    "smallthinker": _Pattern(4, dense_first=True, window=4096, fixed=True),
}

_EXAONE4_WITH_WINDOW = 64  # only the model of this many layers has one


def read_window(
    f: Fields, layers: Layers, recurrent: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Width in tokens and the trunk layers that see no more than that; ``(0, ())`` for none.

    Many headers state a width that llama.cpp does not apply (Qwen2, Mistral, Phi-3); for them it
    is none, as their cache holds the whole context.
    """
    pattern = _PATTERNS.get(f.arch)
    width = f.number("attention.sliding_window", pattern.window if pattern else 0)
    if pattern and pattern.fixed:
        # these take the field only as a switch: smallthinker is off without it, llama4 on
        stated = f.has("attention.sliding_window")
        off = (stated and width == 0) or (f.arch == "smallthinker" and not stated)
        width = 0 if off else pattern.window
    if f.arch == "exaone4" and layers.n_layer != _EXAONE4_WITH_WINDOW:
        width = 0
    if not width:
        return 0, ()
    where = _layers_with_window(f, layers, pattern, recurrent)
    return (width, where) if where else (0, ())


def _layers_with_window(
    f: Fields, layers: Layers, pattern: _Pattern | None, recurrent: tuple[int, ...]
) -> tuple[int, ...]:
    trunk = range(layers.n_layer)
    if f.arch == "lfm2":
        return tuple(i for i in trunk if i not in recurrent)
    if f.arch == "deepseek4":
        return tuple(trunk)
    if f.arch == "phi3":
        return ()
    name = "attention.sliding_window_pattern"
    flags = f.flags(name, layers.n_layer, layers.n_all)
    if flags is not None:
        return tuple(i for i in trunk if flags[i])
    if pattern is None:
        return ()
    every = f.number(name, pattern.every)
    if every == 0:
        return tuple(trunk)
    dense = 0 if pattern.dense_first else every - 1
    return tuple(i for i in trunk if i % every != dense)
