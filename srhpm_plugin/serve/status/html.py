"""Pages put together from elements: text becomes HTML here and nowhere else, escaped."""

from __future__ import annotations

from html import escape

_VOID = ("meta", "rect")


class Html(str):
    """Finished HTML. Made by :func:`element` and :func:`join` only."""

    __slots__ = ()


Child = str | int | None
Attribute = str | int | float | bool | None


def element(tag: str, /, *children: Child, **attributes: Attribute) -> Html:
    """``<tag attributes>children</tag>``.

    Args:
        tag: trusted, as attributes' names are.
        children: texts are escaped; :class:`Html` is not; ``None`` is left out.
        attributes: values are escaped; ``None`` and ``False`` are left out, ``True`` has no value.
            A trailing or inner ``_`` becomes nothing or ``-``.
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{said}/>")
    return Html(f"<{tag}{said}>{join(*children)}</{tag}>")


def join(*children: Child) -> Html:
    """Children one after another."""
    return Html("".join(_text(child) for child in children if child is not None))


def _text(child: str | int) -> str:
    return child if isinstance(child, Html) else escape(_printable(str(child)))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(_printable(str(value)))}"'


def _printable(text: str) -> str:
    """Control characters and the like shown as what they are not."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
