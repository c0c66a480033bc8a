"""Waiting for our kinds: kopf looks once for what the API server serves, so it must all be there before kopf starts.

Called by the operator's process. What keeps it waiting is told apart, since each asks somebody else to act: no answer,
no access, no definitions, no such namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from agentrun.contract.object_meta import API_VERSION
from agentrun.controller.api_client import ApiClient
from agentrun.controller.api_errors import NoAnswerError, NotServedError, UnauthorizedError
from agentrun.controller.api_objects import PLURALS
from agentrun.engine.cluster_port import ClusterUnavailableError, ForbiddenError, GoneError

_log = structlog.get_logger("agentrun.controller")
_PAUSE = timedelta(seconds=1)
_DEFINITIONS = "kubectl apply -f crds/ (an API server before Kubernetes 1.29: with --validate=false)"


@dataclass(frozen=True, slots=True)
class _Hindrance:
    event: str
    cause: str
    remedy: str


async def wait_for_kinds(client: ApiClient) -> None:
    """Return once the API server serves every kind of ours with its status subresource; says what it waits for."""
    said: _Hindrance | None = None
    while (found := await _find_hindrance(client)) is not None:
        if found != said:
            _log.warning(found.event, cause=found.cause, remedy=found.remedy)
            said = found
        await asyncio.sleep(_PAUSE.total_seconds())


async def warn_of_missing_namespaces(client: ApiClient, namespaces: Iterable[str]) -> None:
    """Say which of these namespaces do not exist: nothing can happen in them until somebody creates them."""
    for namespace in namespaces:
        try:
            await client.request("GET", f"/api/v1/namespaces/{namespace}")
        except GoneError:
            remedy = f"kubectl create namespace {namespace}, or correct --namespace"
            _log.warning("namespace_not_found", namespace=namespace, remedy=remedy)
        except ClusterUnavailableError as error:
            # Not every operator is given the right to look at namespaces, and it serves without.
            _log.debug("namespace_not_looked_at", namespace=namespace, cause=str(error))


async def _find_hindrance(client: ApiClient) -> _Hindrance | None:
    try:
        missing = await _find_missing(client)
    except (GoneError, NotServedError) as error:
        return _Hindrance("kinds_not_served", str(error), _DEFINITIONS)
    except UnauthorizedError as error:
        remedy = "the API server does not know who this is: renew the kubeconfig's credentials, or name another"
        return _Hindrance("api_server_refuses", str(error), remedy)
    except ForbiddenError as error:
        remedy = "grant the rights that docs/operator.md lists to whom the message names"
        return _Hindrance("api_server_refuses", str(error), remedy)
    except NoAnswerError as error:
        remedy = "start the API server, or name the kubeconfig of one that can be reached"
        return _Hindrance("api_server_unreachable", str(error), remedy)
    except ClusterUnavailableError as error:
        return _Hindrance("api_server_unavailable", str(error), "none: it is asked again every second")
    return _Hindrance("kinds_not_served", ", ".join(missing), _DEFINITIONS) if missing else None


async def _find_missing(client: ApiClient) -> list[str]:
    answer = await client.request("GET", f"/apis/{API_VERSION}")
    resources = answer.get("resources")
    served = {found.get("name") for found in resources or () if isinstance(found, dict)}
    wanted = [name for plural in PLURALS.values() for name in (plural, f"{plural}/status")]
    # A tool's status is nobody's business yet.
    return [name for name in wanted if name not in served and name != "agenttools/status"]
