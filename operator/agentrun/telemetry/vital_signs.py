"""Shows a process's vital signs while it works: the beat of its loop, and the address for probes and scrapes.

Used by the composition roots of operator and worker. Nothing is shown, and nothing runs, unless an address is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from agentrun.telemetry.listen_address import ListenAddress
from agentrun.telemetry.liveness import Liveness
from agentrun.telemetry.probe_server import ProbeAnswer, Probes, ProbeServer

Readiness = Callable[[], ProbeAnswer]
Round = Callable[[], Coroutine[None, None, None]]


@asynccontextmanager
async def show_vital_signs(
    listen: ListenAddress | None,
    registry: CollectorRegistry,
    liveness: Liveness,
    readiness: Readiness,
    *rounds: Round,
) -> AsyncIterator[ListenAddress | None]:
    """Answer probes and scrapes inside the block, and give the address that was found.

    ``rounds`` go on beside the beat until the end. Raises :class:`~agentrun.telemetry.probe_server.CannotListenError`.
    """
    if listen is None:
        yield None
        return

    def healthz() -> ProbeAnswer:
        fault = liveness.find_fault()
        return ProbeAnswer(not fault, fault or "ok")

    server = ProbeServer(listen, registry, Probes(healthz, readiness))
    found = server.start()
    tasks = [asyncio.create_task(work()) for work in (liveness.beat, *rounds)]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.stop()
