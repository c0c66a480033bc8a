"""Money, durations and times: texts on the wire, exact values inside."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agentrun.contract.durations import MAX_DURATION, format_duration, parse_duration
from agentrun.contract.model_base import Duration, MicrosInt, Money, Timestamp, format_time
from agentrun.contract.money import MAX_MICROS, format_micros, parse_micros

MONEY: TypeAdapter[int] = TypeAdapter(Money)
DURATION: TypeAdapter[timedelta] = TypeAdapter(Duration)
TIME: TypeAdapter[datetime] = TypeAdapter(Timestamp)
NAIVE = datetime(2026, 1, 31, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize(
    "text, micros, shortest",
    [
        ("0", 0, "0.00"),
        ("100.00", 100_000_000, "100.00"),
        ("0.000001", 1, "0.000001"),
        ("1.5", 1_500_000, "1.50"),
        ("0.29", 290_000, "0.29"),
        ("999999999.999999", MAX_MICROS - 1, "999999999.999999"),
    ],
)
def test_money_is_read_to_the_micro_and_written_with_two_decimals_or_more(
    text: str, micros: int, shortest: str
) -> None:
    assert parse_micros(text) == micros
    assert format_micros(micros) == shortest
    assert parse_micros(shortest) == micros


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1.",
        ".5",
        "01",
        "-1",
        "+1",
        "1e3",
        "1,5",
        "1 ",
        "1\n",
        "٣",
        "0x1",
        "1000000000",
        "0.0000001",
        1,
        0.1,
        True,
        None,
    ],
)
def test_anything_else_is_no_money(value: object) -> None:
    with pytest.raises(ValueError, match="is no amount of money: write a decimal string"):
        parse_micros(value)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        MONEY.validate_python(value)


@given(st.integers(0, MAX_MICROS - 1))
def test_every_amount_reads_back_as_it_was_written(micros: int) -> None:
    assert parse_micros(format_micros(micros)) == micros


def test_a_bare_integer_is_never_taken_for_money_and_an_amount_is() -> None:
    assert MONEY.validate_python(MicrosInt(2_500_000)) == 2_500_000
    assert MONEY.dump_python(2_500_000) == "2.50"
    with pytest.raises(ValidationError, match="is no amount of money"):
        MONEY.validate_python(2_500_000)


@pytest.mark.parametrize(
    "text, want, shortest",
    [
        ("0s", timedelta(0), "0s"),
        ("15s", timedelta(seconds=15), "15s"),
        ("1h30m", timedelta(minutes=90), "1h30m"),
        ("90m", timedelta(minutes=90), "1h30m"),
        ("1.5s", timedelta(milliseconds=1500), "1s500ms"),
        ("500ms", timedelta(milliseconds=500), "500ms"),
        ("1h1h", timedelta(hours=2), "2h"),
        ("0.001s", timedelta(milliseconds=1), "1ms"),
        ("720h", timedelta(days=30), "720h"),
        ("87840h", MAX_DURATION, "87840h"),
    ],
)
def test_durations_are_read_like_gos_and_written_the_shortest_way(text: str, want: timedelta, shortest: str) -> None:
    assert parse_duration(text) == want
    assert format_duration(want) == shortest
    assert parse_duration(shortest) == want


@pytest.mark.parametrize(
    "value, problem",
    [
        ("", "is no duration"),
        ("5", "is no duration"),
        ("-5s", "is no duration"),
        ("1d", "is no duration"),
        ("1s ", "is no duration"),
        ("1s\n", "is no duration"),
        ("٣s", "is no duration"),
        ("1e3s", "is no duration"),
        ("1m" * 17, "is no duration"),
        (5, "is no duration"),
        (None, "is no duration"),
        ("0.5ms", "finer than a millisecond"),
        ("87841h", "longer than ten years"),
        ("999999999h", "longer than ten years"),
    ],
)
def test_anything_else_is_no_duration(value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_duration(value)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        DURATION.validate_python(value)


@given(st.integers(0, MAX_DURATION // timedelta(milliseconds=1)).map(lambda ms: timedelta(milliseconds=ms)))
def test_every_duration_reads_back_as_it_was_written(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


def test_a_negative_duration_has_no_text() -> None:
    with pytest.raises(ValueError, match="is negative"):
        format_duration(timedelta(seconds=-1))


@pytest.mark.parametrize(
    "value, want",
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"),
        ("2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.123456Z"),
        ("2026-01-31T14:00:00+02:00", "2026-01-31T12:00:00.000000Z"),
        (datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2))), "2026-01-31T12:00:00.000000Z"),
    ],
)
def test_times_are_utc_with_microseconds(value: object, want: str) -> None:
    read = TIME.validate_python(value)
    assert read.tzinfo is UTC
    assert TIME.dump_python(read) == want


@pytest.mark.parametrize("value", ["2026-01-31T12:00:00", NAIVE, 1_700_000_000, 1.5, "yesterday", True])
def test_a_time_without_a_zone_or_as_a_number_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        TIME.validate_python(value)


@given(st.datetimes(min_value=NAIVE, timezones=st.just(UTC)))
def test_every_time_reads_back_as_it_was_written(moment: datetime) -> None:
    assert TIME.validate_python(format_time(moment)) == moment
