"""Reads Jobs and their pods as the API server has them into what is decided about. Pure; called by the job keeper."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from agentrun.contract.exact_json import JsonObject
from agentrun.controller.jobs.job_manifests import JOB_LABEL, NODE_LABEL
from agentrun.controller.pools.pool_sights import labels_of, list_of, part_of, read_time, text_of
from agentrun.decisions.jobs.job_step import JobSight
from agentrun.decisions.jobs.job_wishes import JobKey


def job_key_of(found: JsonObject) -> JobKey:
    """Return which Job an object is, or belongs to."""
    return JobKey(text_of(part_of(found, "metadata"), "namespace"), text_of(labels_of(found), JOB_LABEL))


def node_uid_of(found: JsonObject) -> str:
    """Return which node an object belongs to."""
    return text_of(labels_of(found), NODE_LABEL)


def read_job(job: JsonObject) -> JobSight:
    """Return a Job as it shows itself, without its pods."""
    meta = part_of(job, "metadata")
    return JobSight(
        uid=text_of(meta, "uid"),
        created_at=read_time(meta.get("creationTimestamp")),
        ended_at=_ended_at(job),
        leaving="deletionTimestamp" in meta,
    )


def find_creation_refusal(events: Iterable[JsonObject]) -> str:
    """Return what the last Event about a Job says that tells of a pod which could not be made; empty where none does.

    Kubernetes puts it nowhere else.
    """
    failed = [event for event in events if text_of(event, "reason") == "FailedCreate"]
    last = max(failed, key=_told_at, default=None)
    return text_of(last, "message") if last is not None else ""


def _told_at(event: JsonObject) -> datetime:
    found = (text_of(event, "lastTimestamp"), text_of(event, "eventTime"))
    return read_time(next((text for text in found if text), ""))


def _ended_at(job: JsonObject) -> datetime | None:
    for condition in list_of(part_of(job, "status"), "conditions"):
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return read_time(condition.get("lastTransitionTime"))
    return None
