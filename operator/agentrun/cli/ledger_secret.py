"""``agentrun operator make-ledger-secret``: what has to stand before an operator with a bundled ledger can start."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.terminal import errors

EXAMPLES = """Examples:

  agentrun operator make-ledger-secret --secret agentrun-ledger --host agentrun-valkey.agents.svc:6379
"""
_PATIENCE = timedelta(minutes=2)
_PAUSE = timedelta(seconds=1)


def make_ledger_secret(
    *,
    secret: Annotated[str, Parameter(help="Name of the Secret, in the pod's own or the context's namespace.")],
    host: Annotated[str, Parameter(help="HOST:PORT of the server that has the password.")],
    kubeconfig: Annotated[
        Path | None, Parameter(help="Kubeconfig. Default: the pod's service account, else what kubectl would take.")
    ] = None,
) -> int:
    """Make the Secret of a bundled ledger, with a password and the URL, unless it is there.

    A Secret that stands is never changed. Waits two minutes for an API server that does not answer.

    Exit codes: 0 it stands, 1 it stands and cannot be used, or may not be made, 6 no API server answers.
    """
    try:
        from agentrun.controller.api_access import ApiAccess, NoClusterError, load_access
        from agentrun.controller.api_client import ApiClient
        from agentrun.controller.api_errors import ObjectRefusedError
        from agentrun.controller.ledger_secret import UnusableLedgerSecretError, ensure_ledger_secret
        from agentrun.controller.webhook.stored_secrets import StoredSecrets
    except ModuleNotFoundError as error:
        errors().print(f"{error.name} is missing: install the operator with `pip install agentrun-operator[operator]`")
        return ExitCode.UNAVAILABLE
    from agentrun.engine.cluster_port import ClusterUnavailableError, ConflictError, GoneError, HeldBackError

    async def work(access: ApiAccess) -> None:
        async with ApiClient(access) as client, asyncio.timeout(_PATIENCE.total_seconds()):
            while True:
                try:
                    await ensure_ledger_secret(StoredSecrets(client, access.default_namespace), secret, host)
                except HeldBackError:
                    # A quota or a missing right does not pass by itself.
                    raise
                except (ClusterUnavailableError, ConflictError) as error:
                    errors().print(f"waiting for the API server: {error}", markup=False)
                else:
                    return
                await asyncio.sleep(_PAUSE.total_seconds())

    try:
        access = load_access(kubeconfig)
    except NoClusterError as error:
        errors().print(str(error), markup=False)
        return ExitCode.UNAVAILABLE
    try:
        asyncio.run(work(access))
    except TimeoutError:
        errors().print(
            f"no API server answered within {_PATIENCE.total_seconds():.0f} s: {access.server}", markup=False
        )
        return ExitCode.UNAVAILABLE
    except (UnusableLedgerSecretError, ObjectRefusedError, GoneError, HeldBackError) as error:
        errors().print(str(error), markup=False)
        return ExitCode.FAILED
    return ExitCode.OK
