"""Deterministic names of child objects, and the labels they are found by."""

from __future__ import annotations

import hashlib

from agentrun.contract.exact_json import json_digest

RUN_UID_LABEL = "agentrun.dev/run-uid"
_LIMIT = 63
_JOB_SHOWN = 44


def node_object_name(run_name: str, run_uid: str, path: str) -> str:
    """Return the AgentNode's name: ``<run>-<node>`` cut, with a hash of the run's uid and the full path.

    Always a valid DNS label of at most 63 characters; two nodes never share a name, nor do two runs of one name.
    """
    return _with_hash(f"{run_name}-{path}".replace(".", "-"), f"{run_uid}/{path}")


def approval_object_name(node_name: str, inbox_id: str) -> str:
    """Return the AgentApproval's name for one question about a node.

    The node's whole name is hashed as well: cut ones are alike, and so are the ids of questions.
    """
    return _with_hash(node_name, f"{node_name}/{inbox_id}")


def job_object_name(node_name: str, order: str) -> str:
    """Return the name of the Job for one order of a node; ``order``: what identifies it among all.

    Short enough for a pod's name, which has six characters more, to be cut nowhere.
    """
    return f"{node_name[:_JOB_SHOWN].strip('-')}-{order[:12]}"


def retry_run_name(run_name: str, run_uid: str, path: str, question: int) -> str:
    """Return the name of the run that goes on where a node of an ended one is dead.

    ``question`` is the number of the question about the node. The same decision always gives the same name; another
    run, node or question never does.
    """
    return _with_hash(f"{run_name}-retry-{path}".replace(".", "-"), f"{run_uid}/retry/{path}/{question}")


def session_lease_name(session: str) -> str:
    """Return the name of the Lease that a session is held by; sessions have names of any length and alphabet."""
    return f"agentrun-session-{hashlib.sha256(session.encode()).hexdigest()[:32]}"


def session_holder(run_uid: str) -> str:
    """Return who a run is as the holder of its session, in the Lease and in the ledger: ``<run uid>/<token>``."""
    return f"{run_uid}/{json_digest(run_uid).removeprefix('sha256:')[:16]}"


def _with_hash(readable: str, identity: str) -> str:
    digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
    return f"{readable[: _LIMIT - 11].strip('-')}-{digest}"
