"""``make dev-cluster`` and ``make dev-ledger``: what an operator needs to run on this machine, until Ctrl-C.

Starts the test suite's control plane with the definitions installed, and a ledger server as durable as the product
demands; prints what to export, stays, and leaves nothing behind. It starts no operator and no worker.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from support.control_plane import ControlPlane, ControlPlaneStartError, find_assets, install_custom_resources
from support.ledger_server import DURABLE, LedgerServer, LedgerServerStartError

_DISCOVERED_WITHIN = 60.0


def main() -> int:
    """Start what is asked for and wait for SIGINT or SIGTERM."""
    arguments = argparse.ArgumentParser(prog="own_cluster", description=__doc__)
    arguments.add_argument("--ledger-only", action="store_true", help="start no control plane")
    chosen = arguments.parse_args()
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    with contextlib.ExitStack() as stack:
        try:
            ledger = stack.enter_context(LedgerServer(DURABLE))
            if not chosen.ledger_only:
                _start_control_plane(stack)
        except (ControlPlaneStartError, LedgerServerStartError) as error:
            print(error, file=sys.stderr)
            return 1
        print(f"export AGENTRUN_OPERATOR_REDIS={ledger.url} AGENTRUN_WORKER_REDIS={ledger.url}")
        print("# Paste this into other shells. Ctrl-C here ends everything, and what it holds is gone.", flush=True)
        asked.wait()
    return 0


def _start_control_plane(stack: contextlib.ExitStack) -> None:
    assets = find_assets()
    if assets is None:
        raise ControlPlaneStartError("no control plane on this machine: start this with `make dev-cluster`")
    plane = stack.enter_context(ControlPlane(assets))
    install_custom_resources(plane.kubeconfig)
    _wait_until_discovered(plane.kubeconfig)
    print(f"export KUBECONFIG={plane.kubeconfig}")


def _wait_until_discovered(kubeconfig: Path) -> None:
    """Return when kubectl finds our kinds by their category: that comes some time after they are established."""
    deadline = time.monotonic() + _DISCOVERED_WITHIN
    asked = ["kubectl", "--kubeconfig", str(kubeconfig), "get", "agentrun-all"]
    while (found := subprocess.run(asked, capture_output=True, text=True)).returncode:
        if time.monotonic() > deadline:
            raise ControlPlaneStartError(f"the definitions are not served: {found.stderr.strip()}")
        time.sleep(0.5)


sys.exit(main())
