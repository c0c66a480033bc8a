"""Threads are used again, and nothing of a call stays in them."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from agentrun_worker.spare_threads import SpareThreads

_WITHIN = 20.0
_SAID: contextvars.ContextVar[str] = contextvars.ContextVar("said", default="nothing")


def _run(threads: SpareThreads, job: Callable[[], None]) -> None:
    """Run a job to its end."""
    ended = threading.Event()

    def act() -> None:
        job()
        ended.set()

    threads.run(act)
    assert ended.wait(_WITHIN)


def test_jobs_one_after_another_need_few_threads_and_leave_no_context_behind() -> None:
    threads = SpareThreads()
    idents: set[int] = set()
    said: set[str] = set()

    def job() -> None:
        idents.add(threading.get_ident())
        said.add(_SAID.get())
        _SAID.set("something")

    for _ in range(50):
        _run(threads, job)

    # The next job may come before the thread of the last one is back.
    assert len(idents) < 50
    assert said == {"nothing"}


def test_jobs_at_the_same_time_have_a_thread_each() -> None:
    threads = SpareThreads()
    together = threading.Barrier(4, timeout=_WITHIN)
    met = [threading.Event() for _ in range(4)]

    def meet(event: threading.Event) -> None:
        together.wait()
        event.set()

    for event in met:
        threads.run(lambda event=event: meet(event))  # type: ignore[misc]

    assert all(event.wait(_WITHIN) for event in met)


def test_a_job_that_does_not_end_holds_up_no_other() -> None:
    threads = SpareThreads()
    release = threading.Event()
    threads.run(lambda: release.wait(_WITHIN) and None)  # type: ignore[func-returns-value]
    _run(threads, lambda: None)
    release.set()
