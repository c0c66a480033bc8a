"""One worker process for many namespaces: ``python -m bench_cluster.worker_host URL INSTALL SLOTS NAMESPACE…``.

The product's worker serves one namespace. A process of its own for each of 51 namespaces would measure this machine's
process switches, so here the very same workers share one process and one loop; each has its own ledger connection.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from agentrun.contract.tool import ToolType
from agentrun.ledger.redis_connection import LedgerSettings
from agentrun.ledger.redis_ledger import RedisLedger
from agentrun.schemas.validator import SchemaValidator
from agentrun_worker.identity import build_identity
from agentrun_worker.python_executor import PythonExecutor
from agentrun_worker.worker import Worker

TOOLS = Path(__file__).parent / "tools"


async def serve(url: str, install: str, slots: int, namespaces: list[str]) -> None:
    """Work for the pool ``shared`` of all these namespaces until SIGTERM."""
    ledgers = [RedisLedger.connect(url, LedgerSettings(install=install)) for _ in namespaces]
    executors = {ToolType.PYTHON: PythonExecutor([TOOLS])}
    validator = SchemaValidator()
    workers = [
        Worker(ledger, build_identity(namespace, "shared", f"bench-{namespace}", slots), executors, validator)
        for ledger, namespace in zip(ledgers, namespaces, strict=True)
    ]

    def stop() -> None:
        for worker in workers:
            worker.request_drain()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        await asyncio.gather(*(worker.run() for worker in workers))
    finally:
        await asyncio.gather(*(ledger.close() for ledger in ledgers))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
