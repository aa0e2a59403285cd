"""One start of a drop-in: its note, the host's arguments and environment.

Only the standard library: it is on the way of every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .note import SUFFIX, Note

# The program hides these from the interpreter and hands their values over under another name.
HIDDEN = "SRHPM_HOST_"

# Arguments that are different at every start or secret, and decide nothing.
_SILENT = frozenset(("--port", "--host", "--api-key", "--hf-token", "-hft", "--api-key-file"))
_SILENT_ENV = frozenset(
    ("LLAMA_API_KEY", "LLAMA_MEDIA_MARKER", "LLAMA_ARG_PORT", "LLAMA_ARG_HOST", "SRHPM_HOME")
)
ALIAS = ("-a", "--alias")
# Variables that the server, its libraries or the planner read.
_HEARD = ("LLAMA_", "GGML_", "SRHPM_", "CUDA_", "HIP_", "ROCR_", "GOMP_", "OMP_", "KMP_", "VK_")
_HEARD_TOO = frozenset(
    ("HF_HOME", "HF_HUB_CACHE", "HOME", "USERPROFILE", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH")
)


@dataclass(frozen=True)
class Call:
    """See the module.

    Attributes:
        note: what the drop-in stands in for.
        place: the drop-in.
        argv: the host's arguments.
        env: the host's environment.
        note_text: the note as it lies there, for the cache's key.
    """

    note: Note
    place: Path
    argv: tuple[str, ...]
    env: Mapping[str, str]
    note_text: bytes

    @classmethod
    def read(cls, note_path: Path, argv: tuple[str, ...], environ: Mapping[str, str]) -> Call:
        """Raises :class:`OSError` and :class:`ValueError`: the note cannot be read."""
        text = note_path.read_bytes()
        place = note_path.absolute()
        place = place.with_name(place.name.removesuffix(SUFFIX))
        env = {k: v for k, v in environ.items() if not k.startswith(HIDDEN)}
        env |= {k[len(HIDDEN) :]: v for k, v in environ.items() if k.startswith(HIDDEN)}
        return cls(Note.parse(text), place, argv, env, text)

    @property
    def original(self) -> Path | None:
        """The host's own server, when there is one that is not our drop-in again."""
        if self.note.original is None:
            return None
        path = self.place.parent / self.note.original
        try:
            again = path.samefile(self.place)
        except OSError:
            return None
        dropin = Note.path_for(path).exists() or Note.path_for(path.resolve()).exists()
        return None if again or dropin or not path.is_file() else path

    def names_a_model(self) -> bool:
        """Whether a model file is to be served: by argument or by variable."""
        named = any(flag in ("-m", "--model") for flag in map(flag_of, self.argv))
        return named or "LLAMA_ARG_MODEL" in self.env

    @property
    def alias(self) -> str | None:
        """The name that the model is served under, the first where there are several."""
        said = [a.partition("=")[2] for a in self.argv if a.startswith("--alias=")]
        said += [v for f, v in zip(self.argv, self.argv[1:], strict=False) if f in ALIAS]
        return next((name for name in said[-1].split(",") if name), None) if said else None

    def telling_args(self) -> list[str]:
        """The arguments without what is different at every start or secret."""
        told: list[str] = []
        silent = False
        for arg in self.argv:
            flag = flag_of(arg)
            told.append("" if silent else flag if flag in _SILENT else arg)
            silent = not silent and flag in _SILENT and "=" not in arg
        return told

    def telling_env(self) -> dict[str, str]:
        """The variables that may decide something."""
        return {
            k: v
            for k, v in sorted(self.env.items())
            if (k.startswith(_HEARD) or k in _HEARD_TOO)
            and k not in _SILENT_ENV
            and not k.startswith("SRHPM_DROPIN")
        }


def flag_of(arg: str) -> str:
    """The flag of an argument as the server compares it: ``--a_b=c`` is ``--a-b``."""
    flag = arg.partition("=")[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag
