"""Brings the helper of tools of type container to where their containers find it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

HELPER = Path(__file__).with_name("container_helper.sh")
BUSYBOX_VARIABLE = "AGENTRUN_BUSYBOX"
"""Names the busybox to copy; it has to be linked statically. Set in the worker's image; default: the one in PATH."""


class HelperMissingError(Exception):
    """There is no busybox to copy; the message says what to do."""


def install_helper(folder: Path) -> None:
    """Copy busybox and the script. Raises :class:`HelperMissingError` and :class:`OSError`."""
    named = os.environ.get(BUSYBOX_VARIABLE) or shutil.which("busybox")
    if not named or not Path(named).is_file():
        missing = f"{named} is no file" if named else "there is no busybox in PATH"
        raise HelperMissingError(f"{missing}: install busybox-static, or name it by {BUSYBOX_VARIABLE}")
    for source, name, mode in ((Path(named), "busybox", 0o755), (HELPER, HELPER.name, 0o644)):
        part = folder / f".{name}"
        shutil.copyfile(source, part)
        part.chmod(mode)
        part.replace(folder / name)
