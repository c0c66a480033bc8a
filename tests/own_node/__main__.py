"""Starts a node with the given images, runs a command with ``KUBECONFIG`` set to it, and takes the node away again.

Called by tests/node/run, inside of namespaces of its own. Ends as the command ended.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from own_node.node import Node, find_missing_programs
from support.control_plane import ControlPlaneStartError

LOGS_VARIABLE = "NODE_LOGS"


def main() -> int:
    """Start the node, run the command, stop."""
    parser = argparse.ArgumentParser(prog="own_node", description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="folder with Kubernetes' own programs")
    parser.add_argument("--images", type=Path, required=True, help="folder with docker archives (*.tar)")
    parser.add_argument("command", nargs="+", help="what is run on the node")
    asked = parser.parse_args()
    missing = find_missing_programs()
    if missing:
        print(f"own_node: missing on this machine: {', '.join(missing)}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = time.monotonic()
    node = Node(asked.binaries)
    try:
        node.start()
        node.load_images(sorted(asked.images.glob("*.tar")))
        node.join()
        print(f"own_node: ready after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        return subprocess.run(
            asked.command, env={**os.environ, "KUBECONFIG": str(node.kubeconfig)}, check=False
        ).returncode
    except ControlPlaneStartError as error:
        print(f"own_node: {error}", file=sys.stderr)
        return 1
    finally:
        kept = os.environ.get(LOGS_VARIABLE)
        if kept:
            Path(kept).mkdir(parents=True, exist_ok=True)
            for log in node.folder.glob("*.log"):
                shutil.copy(log, kept)
        node.stop()
        print(f"own_node: gone after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
