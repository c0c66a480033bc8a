"""Every guard of the protocol is missed when it is gone: by the invariant that names it, and by no change of a seed."""

from __future__ import annotations

import pytest

from simulation.one_history import live_seed
from simulation.sabotages import SABOTAGES, Sabotage, live_sabotaged

EACH = pytest.mark.parametrize("sabotage", SABOTAGES.values(), ids=SABOTAGES)


@EACH
def test_a_missing_guard_is_noticed_by_the_invariant_that_names_it(sabotage: Sabotage) -> None:
    found = live_sabotaged(sabotage, sabotage.seed)
    looked = f'histories have changed? make simulate ARGS="--sabotage {sabotage.name}" finds the seed anew'
    assert found.promise == sabotage.promise, f"{found.said or 'nothing was noticed'}; {looked}"


@pytest.mark.parametrize("seed", sorted({sabotage.seed for sabotage in SABOTAGES.values()}))
def test_the_same_history_with_every_guard_in_its_place_keeps_every_promise(seed: int) -> None:
    assert live_seed(seed).said == ""
