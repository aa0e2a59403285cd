"""What ``srhpm-plugin doctor`` says of model files: slow disks, drafters that fit no model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from ..errors import UserError
from ..home import data_dir
from ..machine.mounts import mount_of
from ..machine.tree import Tree
from ..planner.headers import read_header
from ..planner.hosted import Hosted, hosted
from ..planner.kind import DRAFT_ONLY
from ..planner.pairing import upstream_difference
from ..planner.sources import survey
from ._check import Check

# Kinds of file systems whose bytes come from a file server: over a network, or from the system
# around a virtual machine (9p, which WSL reaches Windows' disks by).
_SERVED = re.compile(
    r"nfs4?|cifs|smb3|smbfs|9p|afs|ceph|glusterfs|lustre|beegfs|gpfs|orangefs|davfs|"
    r"fuse\.(sshfs|rclone|s3fs|gcsfuse|glusterfs|ceph|davfs|smbnetfs|gvfsd-fuse|juicefs)"
)


def check_models(tree: Tree) -> Iterator[Check]:
    """Everything here, over all models that are known."""
    of_hosts, _ = hosted()
    paths = dict.fromkeys((*survey().models, *(one.model.path for one in of_hosts)))
    yield from check_disks(paths, tree)
    yield from check_drafters(of_hosts)


def check_disks(models: Iterable[Path], tree: Tree) -> Iterator[Check]:
    """Models on a network's disk. The server maps files into memory: pages that the system drops
    to make room are fetched again in the middle of an answer, at the network's speed."""
    for path in models:
        try:
            real = path.resolve()
        except (OSError, RuntimeError):
            continue
        mount = mount_of(tree, PurePosixPath(real.as_posix()))
        if mount is None or not _SERVED.fullmatch(mount.kind):
            continue
        detail = (
            f"{path} lies on {mount.point} ({mount.kind}): what memory cannot keep of it is "
            "fetched from the file server again and again"
        )
        folder = str(data_dir() / "models")
        fix = f"{shlex.join(['mkdir', '-p', folder])} && {shlex.join(['cp', str(path), folder])}"
        yield Check("model on a network", "warning", detail, fix)


def check_drafters(models: Iterable[Hosted]) -> Iterator[Check]:
    """Drafters that a host has for a model and that cannot draft for it."""
    for one in models:
        model = one.model
        if model.drafter is None or model.unfit is not None:
            continue
        why = _why_not(model.path, model.drafter)
        if why:
            detail = f"{model.name} is given {model.drafter}, which cannot draft for it: {why}"
            fix = f"srhpm-plugin plan {shlex.quote(model.name)}"
            yield Check(f"drafter in {one.host}", "warning", detail, fix)


def _why_not(target: Path, drafter: Path) -> str | None:
    try:
        ours, theirs = read_header(target), read_header(drafter)
    except UserError as error:
        return f"{error.what}: {error.why}"
    if theirs.arch in DRAFT_ONLY or ours.tokenizer is None or theirs.tokenizer is None:
        return None  # has no vocabulary of its own, or none to compare
    return upstream_difference(ours.tokenizer, theirs.tokenizer)
