"""Where attempts run: which tools share a queue, and what an execution cannot be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentrun.contract.execution import Execution, ExecutionMode, find_ledger_pool, find_order_queue, serves_one_order
from agentrun_worker.settings import ProcessSettings

SECRET: dict[str, Any] = {"name": "keys", "kind": "Secret", "source": "shop", "mountPath": "/keys"}
CONFIG: dict[str, Any] = {"name": "texts", "kind": "ConfigMap", "source": "texts", "mountPath": "/texts"}
PLAIN: dict[str, Any] = {"pool": "reports"}
OTHER_PODS = [
    pytest.param({"image": "shop/tools:1"}, id="image"),
    pytest.param({"serviceAccountName": "shop"}, id="account"),
    pytest.param({"env": [{"name": "REGION", "value": "north"}]}, id="environment"),
    pytest.param({"volumes": [SECRET]}, id="volumes"),
]
SAME_PODS = [
    pytest.param({"resources": {"limits": {"memory": "1Gi"}}}, id="resources"),
    pytest.param({"scaling": {"min": 1, "max": 3}}, id="scaling"),
    pytest.param({"secrets": ["shop"]}, id="secrets"),
]


def pool_of(**execution: Any) -> str:
    return find_ledger_pool(Execution.from_wire({**PLAIN, **execution}))


def test_a_tool_that_says_nothing_has_the_shared_pool() -> None:
    assert find_ledger_pool(None) == find_ledger_pool(Execution()) == "shared"


@pytest.mark.parametrize("given_parts", SAME_PODS)
def test_what_one_pod_can_serve_keeps_the_plain_name(given_parts: dict[str, Any]) -> None:
    assert pool_of(**given_parts) == "reports"


@pytest.mark.parametrize("given_parts", OTHER_PODS)
def test_what_makes_another_pod_makes_another_queue(given_parts: dict[str, Any]) -> None:
    assert pool_of(**given_parts).startswith("reports.")


def test_every_difference_of_pods_is_a_queue_of_its_own() -> None:
    pools = {pool_of(**param.values[0]) for param in OTHER_PODS}  # type: ignore[arg-type]
    more = {pool_of(image="shop/tools:2"), pool_of(volumes=[{**SECRET, "optional": True}]), pool_of()}
    assert len(pools | more) == len(OTHER_PODS) + 3


def test_the_order_in_which_a_pod_is_written_makes_no_other_queue() -> None:
    variables = [{"name": "A", "value": "1"}, {"name": "B"}]
    forward = pool_of(env=variables, volumes=[SECRET, {**CONFIG, "readOnly": True}])
    assert forward == pool_of(env=variables[::-1], volumes=[CONFIG, SECRET])


@given(pool=st.from_regex(r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z"), image=st.sampled_from([None, "a", "b/c:1"]))
def test_a_worker_can_be_started_for_every_queue(pool: str, image: str | None) -> None:
    name = find_ledger_pool(Execution(pool=pool, image=image))
    assert ProcessSettings(pool=name).pool == name


@given(
    pool=st.from_regex(r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z"),
    orders=st.lists(st.tuples(st.uuids().map(str), st.integers(1, 99), st.sampled_from(["a", "b"])), unique=True),
)
def test_every_order_of_a_job_has_a_queue_that_a_worker_can_be_started_for(
    pool: str, orders: list[tuple[str, int, str]]
) -> None:
    execution = Execution(pool=pool, mode=ExecutionMode.JOB, image="x:1")
    queues = [find_order_queue(execution, *order) for order in orders]
    assert len(set(queues)) == len(orders)
    for queue in queues:
        assert ProcessSettings(pool=queue).pool == queue
        assert serves_one_order(queue)
    assert not serves_one_order(find_ledger_pool(execution))
    assert not serves_one_order(find_ledger_pool(Execution(pool=pool)))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"mode": "Job", "scaling": {}}, id="a Job that scales"),
        pytest.param({"env": [{"name": "A"}, {"name": "A", "value": "x"}]}, id="a variable twice"),
        pytest.param({"volumes": [SECRET, {**CONFIG, "name": "keys"}]}, id="a volume twice"),
        pytest.param({"volumes": [SECRET, {**CONFIG, "mountPath": "/keys/"}]}, id="two volumes in one place"),
        pytest.param({"resources": {"limits": {"memory": "much"}}}, id="no amount"),
        pytest.param({"image": "a b"}, id="no image"),
        pytest.param({"pool": "a.b"}, id="a dot in a pool"),
        pytest.param({"hostNetwork": True}, id="an unknown field"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Execution.from_wire({**PLAIN, **wrong})
