"""``agentrun operator run``: the operator as a process, in a pod or beside a kubeconfig."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import ValidationError

from agentrun.cli.exit_codes import ExitCode
from agentrun.cli.terminal import errors

EXAMPLES = """Examples:

  agentrun operator run --kubeconfig ~/.kube/config --redis redis://127.0.0.1:6379/0
  agentrun operator run --namespace shop --namespace billing
  kubectl apply -f crds/     (once, before the first start)
"""


def run(
    *,
    kubeconfig: Annotated[
        Path | None, Parameter(help="Kubeconfig. Default: the pod's service account, else what kubectl would take.")
    ] = None,
    context: Annotated[str | None, Parameter(help="Context of the kubeconfig. Default: its current one.")] = None,
    namespace: Annotated[
        list[str] | None, Parameter(help="Namespace to serve; may be repeated. Default: all.", negative="")
    ] = None,
    redis: Annotated[
        str | None, Parameter(help="Redis or Valkey that holds the ledger. Default: redis://127.0.0.1:6379/0.")
    ] = None,
    install: Annotated[str | None, Parameter(help="The installation's id. Default: agentrun.")] = None,
    listen: Annotated[
        str | None,
        Parameter(help="HOST:PORT for /metrics, /healthz and /readyz, for example 127.0.0.1:8080. Default: none."),
    ] = None,
    webhook_listen: Annotated[
        str | None,
        Parameter(help="HOST:PORT for the admission webhook of approvals, for example 0.0.0.0:8443. Default: none."),
    ] = None,
    webhook_url: Annotated[
        str | None,
        Parameter(help="Out of a cluster: the webhook's https URL; its configurations are created with it."),
    ] = None,
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error. Default: info.")] = None,
    log_json: Annotated[bool | None, Parameter(help="Log lines as JSON.", negative="")] = None,
) -> int:
    """Reconcile the AgentRuns of a cluster until SIGTERM or SIGINT.

    Every option may be set as an environment variable as well, AGENTRUN_OPERATOR_<OPTION>; NAMESPACES takes names
    separated by commas. Further ones are LEASE_NAMESPACE, LEASE_DURATION (15s), IDENTITY, GLOBAL_LIMIT,
    RESERVED_SLOTS (P0=2), SESSION_LEASE (10m), SWEEP_EVERY (10m), RETENTION_NODES (24h), RETENTION_MAX_FINISHED_RUNS,
    DURABILITY (Require or Accept) and APPROVALS_UNVERIFIED, which says what becomes of decisions that no webhook has
    sealed: Refuse (the default with a webhook), ApproveAndReject (the default without one) or All; those of the webhook
    stand in docs/operator.md. Several operators of one install may run: one leads, the others stand by.

    Exit codes: 0 stopped in order, 1 another operator has taken the lead or a part failed (start it anew), 2 arguments
    or environment cannot be used, or another install serves the same, 6 no API server is known.
    """
    # kopf and the Kubernetes client are an extra, and take half a second to load: no other verb needs them.
    try:
        from agentrun.controller.api_access import NoClusterError, load_access
        from agentrun.controller.install_binding import ForeignInstallError
        from agentrun.controller.leadership import LeadershipLostError
        from agentrun.controller.operator_process import OperatorProcess
        from agentrun.controller.operator_settings import ENVIRONMENT_PREFIX, OperatorSettings
    except ModuleNotFoundError as error:
        errors().print(f"{error.name} is missing: install the operator with `pip install agentrun-operator[operator]`")
        return ExitCode.UNAVAILABLE
    from agentrun.engine.services import EpochLostError
    from agentrun.telemetry.log_setup import set_up_logs
    from agentrun.telemetry.probe_server import CannotListenError
    from agentrun.telemetry.setting_faults import explain_settings

    given: dict[str, Any] = {
        "kubeconfig": kubeconfig,
        "context": context,
        "namespaces": namespace,
        "redis": redis,
        "install": install,
        "listen": listen,
        "webhook_listen": webhook_listen,
        "webhook_url": webhook_url,
        "log_level": log_level,
        "log_json": log_json,
    }
    try:
        settings = OperatorSettings(**{field: value for field, value in given.items() if value is not None})
    except ValidationError as error:
        options = {field: f"--{field.replace('_', '-')}" for field in given} | {"namespaces": "--namespace"}
        for line in explain_settings(error, ENVIRONMENT_PREFIX, options):
            errors().print(line, markup=False)
        return ExitCode.USAGE
    set_up_logs(settings.log_level, as_json=settings.log_json)
    try:
        access = load_access(settings.kubeconfig, settings.context)
    except NoClusterError as error:
        errors().print(str(error), markup=False)
        return ExitCode.UNAVAILABLE

    async def work() -> None:
        process = OperatorProcess(settings, access)
        process.listen_to_signals()
        await process.run()

    try:
        asyncio.run(work())
    except CannotListenError as error:
        errors().print(str(error), markup=False)
        return ExitCode.USAGE
    except ForeignInstallError as error:
        errors().print(str(error), markup=False)
        return ExitCode.USAGE
    except (EpochLostError, LeadershipLostError) as error:
        errors().print(f"the lead was lost: {error}", markup=False)
        return ExitCode.FAILED
    return ExitCode.OK
