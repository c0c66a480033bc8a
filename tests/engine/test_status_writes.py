"""How often statuses are written, and that writing them keeps nobody waiting."""

from __future__ import annotations

import asyncio

from agentrun.engine.cluster_port import ClusterObject
from support.world import World, in_world

ONE = "nodes: [{name: a, tool: act}]"


def test_a_run_that_ends_within_a_second_is_written_at_its_admission_and_at_its_end() -> None:
    async def test(world: World) -> None:
        written: list[str] = []
        replace = world.cluster.replace_status

        async def note(changed: ClusterObject) -> ClusterObject:
            if changed.kind == "AgentRun" and changed.status is not None:
                written.append(str(changed.status.phase))
            return await replace(changed)

        world.cluster.replace_status = note  # type: ignore[method-assign]
        world.start_worker()
        world.start_scheduler()
        world.apply_run(ONE)
        ended = await world.ended()
        await asyncio.sleep(5)
        assert written == ["Running", "Succeeded"]
        assert ended.counts == {"Succeeded": 1}

    in_world(test, "act: {timeout: 10s}", "tools: {act: [{result: 1}]}")
