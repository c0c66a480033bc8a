"""Join rules: the table, its independence of order, and the counter that replaces rescans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.contract.failures import Reason
from agentrun.contract.run import Join, JoinRule
from agentrun.decisions.join_rules import (
    Choice,
    ChooserVerdict,
    Chosen,
    JoinCounter,
    JoinVerdict,
    Met,
    NotChosen,
    Skip,
    Unsatisfiable,
    UpstreamEnd,
    Waiting,
    judge_choosers,
    judge_join,
)

LETTERS = {
    "p": UpstreamEnd.PENDING,
    "S": UpstreamEnd.SUCCEEDED,
    "k": UpstreamEnd.SKIPPED,
    "t": UpstreamEnd.TOLERATED_DEAD,
    "D": UpstreamEnd.DEAD,
    "C": UpstreamEnd.CANCELLED,
}
ENDS = st.lists(st.sampled_from(UpstreamEnd), max_size=8)
JOINS = st.sampled_from([rule for rule in JoinRule if rule is not JoinRule.AT_LEAST]).map(
    lambda rule: Join(rule=rule)
) | st.integers(1, 8).map(lambda count: Join(rule=JoinRule.AT_LEAST, count=count))


def build_join(text: str) -> Join:
    rule, _, count = text.partition(" ")
    return Join(rule=JoinRule(rule), count=int(count)) if count else Join(rule=JoinRule(rule))


@pytest.mark.parametrize(
    "rule,want_by_ends",
    [
        pytest.param(
            "All",
            {"SS": Met, "St": Met, "tt": Met, "Sp": Waiting, "kp": Waiting, "Dp": Waiting, "Sk": Skip, "kk": Skip}
            | {"tk": Skip, "SD": Unsatisfiable, "kD": Unsatisfiable, "SC": Unsatisfiable},
            id="all",
        ),
        pytest.param(
            "Any",
            {"Sp": Met, "SD": Met, "Sk": Met, "kp": Waiting, "Dp": Waiting, "tp": Waiting, "kk": Skip}
            | {"kD": Unsatisfiable, "DD": Unsatisfiable, "tt": Unsatisfiable, "kt": Unsatisfiable, "CC": Unsatisfiable},
            id="any",
        ),
        pytest.param(
            "AtLeast 2",
            {"SSp": Met, "SSD": Met, "Spp": Waiting, "Skp": Waiting, "DDp": Waiting, "kkk": Skip, "SDD": Unsatisfiable}
            | {"Skk": Unsatisfiable, "Stt": Unsatisfiable, "S": Unsatisfiable},
            id="at least two",
        ),
        pytest.param(
            "NoFailureOneSuccess",
            {"kp": Waiting, "Sp": Waiting, "kS": Met, "SS": Met, "tS": Met, "SD": Unsatisfiable, "SC": Unsatisfiable}
            | {"kk": Skip, "kD": Unsatisfiable, "tk": Unsatisfiable, "Dp": Waiting},
            id="no failure and one success",
        ),
        pytest.param("Always", {"DC": Met, "kk": Met, "S": Met, "Sp": Waiting, "Dp": Waiting}, id="always"),
    ],
)
def test_join_rule(rule: str, want_by_ends: dict[str, type[JoinVerdict]]) -> None:
    join = build_join(rule)

    got = {ends: type(judge_join(join, [LETTERS[letter] for letter in ends])) for ends in want_by_ends}

    assert got == want_by_ends


@pytest.mark.parametrize("rule", ["All", "Any", "AtLeast 3", "NoFailureOneSuccess", "Always"])
def test_join_over_nothing_is_met(rule: str) -> None:
    assert judge_join(build_join(rule), []) == Met()


def test_no_rule_means_all() -> None:
    assert judge_join(None, [UpstreamEnd.SUCCEEDED, UpstreamEnd.SKIPPED]) == Skip(Reason.UPSTREAM_SKIPPED)


def test_join_with_a_skipped_first_parent_waits_for_the_second() -> None:
    join = build_join("NoFailureOneSuccess")
    counter = JoinCounter.of(2).after(UpstreamEnd.SKIPPED)

    assert counter.verdict(join) == Waiting(1)
    assert counter.after(UpstreamEnd.SUCCEEDED).verdict(join) == Met()


def test_unsatisfiable_join_says_the_counts() -> None:
    got = judge_join(build_join("AtLeast 2"), [LETTERS[letter] for letter in "SDCkt"])

    assert got == Unsatisfiable("AtLeast(2) of 5: 1 succeeded, 1 skipped, 1 dead and tolerated, 2 dead or cancelled")


@given(JOINS, ENDS, st.randoms(use_true_random=False))
def test_order_of_upstream_nodes_changes_nothing(join: Join, ends: list[UpstreamEnd], random: object) -> None:
    shuffled = list(ends)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert judge_join(join, ends) == judge_join(join, shuffled)


def judge_by_rescan(join: Join, ends: list[UpstreamEnd]) -> type[JoinVerdict]:
    """The table of the module, read row by row over the list itself."""
    succeeded = ends.count(UpstreamEnd.SUCCEEDED)
    ended = UpstreamEnd.PENDING not in ends
    failed = UpstreamEnd.DEAD in ends or UpstreamEnd.CANCELLED in ends
    met = {
        JoinRule.ALL: all(end in (UpstreamEnd.SUCCEEDED, UpstreamEnd.TOLERATED_DEAD) for end in ends),
        JoinRule.ANY: succeeded >= 1,
        JoinRule.AT_LEAST: succeeded >= (join.count or 0),
        JoinRule.NO_FAILURE_ONE_SUCCESS: ended and not failed and succeeded >= 1,
        JoinRule.ALWAYS: ended,
    }[join.rule]
    if met or not ends:
        return Met
    if not ended:
        return Waiting
    skip = not failed if join.rule is JoinRule.ALL else set(ends) == {UpstreamEnd.SKIPPED}
    return Skip if skip else Unsatisfiable


@given(JOINS, ENDS)
def test_counter_equals_a_rescan_after_every_event(join: Join, final: list[UpstreamEnd]) -> None:
    counter = JoinCounter.of(len(final))
    known = [UpstreamEnd.PENDING] * len(final)
    for position, end in enumerate(final):
        counter = counter.after(end)
        known[position] = end

        assert type(counter.verdict(join)) is judge_by_rescan(join, known)
        assert counter.verdict(join) == judge_join(join, known)


@given(JOINS, ENDS)
def test_verdict_never_changes_once_it_is_given(join: Join, final: list[UpstreamEnd]) -> None:
    counter = JoinCounter.of(len(final))
    given_verdicts = []
    for end in final:
        counter = counter.after(end)
        if not isinstance(counter.verdict(join), Waiting):
            given_verdicts.append(counter.verdict(join))

    assert all(verdict == given_verdicts[0] for verdict in given_verdicts)


@given(ENDS, st.sampled_from(UpstreamEnd))
def test_reopening_undoes_an_end(ends: list[UpstreamEnd], end: UpstreamEnd) -> None:
    counter = JoinCounter.of(len(ends) + 1)
    for earlier in ends:
        counter = counter.after(earlier)

    assert counter.after(end).reopened(end) == counter


def test_counting_an_end_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="counted more often"):
        JoinCounter.of(1).after(UpstreamEnd.SUCCEEDED).after(UpstreamEnd.SUCCEEDED)


@pytest.mark.parametrize(
    "choices,want",
    [
        pytest.param([], Chosen(), id="no condition"),
        pytest.param([Choice.CHOSE_IT], Chosen(), id="chosen"),
        pytest.param([Choice.CHOSE_OTHER, Choice.CHOSE_IT, Choice.CHOSE_OTHER], Chosen(), id="one of three"),
        pytest.param([Choice.SKIPPED, Choice.FAILED, Choice.CHOSE_IT], Chosen(), id="others skipped and failed"),
        pytest.param([Choice.CHOSE_IT, Choice.PENDING], Waiting(1), id="one has not ended"),
        pytest.param([Choice.CHOSE_OTHER, Choice.PENDING, Choice.PENDING], Waiting(2), id="two have not ended"),
        pytest.param([Choice.CHOSE_OTHER], NotChosen(Reason.NOT_CHOSEN), id="another branch"),
        pytest.param([Choice.SKIPPED, Choice.CHOSE_OTHER], NotChosen(Reason.NOT_CHOSEN), id="skipped and another"),
        pytest.param([Choice.SKIPPED, Choice.SKIPPED], NotChosen(Reason.UPSTREAM_SKIPPED), id="all skipped"),
        pytest.param([Choice.SKIPPED, Choice.FAILED], NotChosen(Reason.JOIN_UNSATISFIABLE), id="never decided"),
    ],
)
def test_node_is_chosen_by_one_of_its_conditions(choices: list[Choice], want: ChooserVerdict) -> None:
    assert judge_choosers(choices) == want
    assert judge_choosers(choices[::-1]) == want
