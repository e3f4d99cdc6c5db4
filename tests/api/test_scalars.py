import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from slipway.api.scalars import DecimalString, Duration, Quantity, format_duration
from slipway.api.timestamps import format_time, parse_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300ms", 0.3), ("30s", 30), ("10m", 600), ("1h30m", 5400), ("2d", 172800), ("1.5s", 1.5), ("0s", 0)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert TypeAdapter(Duration).validate_python(text).seconds == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 s", "-5s", "s", "5S", "1h 30m", "5s\n", 5, None])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Duration).validate_python(text)


@given(st.integers(min_value=1, max_value=10**7))
def test_durations_round_trip(seconds: int) -> None:
    assert Duration(format_duration(seconds)).seconds == seconds
    assert TypeAdapter(Duration).validate_python(format_duration(seconds)) == format_duration(seconds)


@pytest.mark.parametrize(
    ("text", "value"), [("64Mi", 64 * 2**20), ("2", 2), (2, 2), ("500m", 0.5), ("1k", 1000), ("1.5Gi", 1.5 * 2**30)]
)
def test_quantities_are_read(text: object, value: float) -> None:
    assert TypeAdapter(Quantity).validate_python(text).value == value


@pytest.mark.parametrize("text", ["", "Mi", "1 Mi", "-1", "1KiB", 1.5, True])
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Quantity).validate_python(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_keep_their_digits(number: float) -> None:
    text = TypeAdapter(DecimalString).validate_python(DecimalString.of(number, 12))
    assert text.number == pytest.approx(number, rel=1e-11)


def test_a_decimal_must_be_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        DecimalString.of(float("nan"))


@given(st.integers(min_value=0, max_value=4 * 10**15))
def test_times_round_trip_to_the_microsecond(microseconds: int) -> None:
    assert parse_time(format_time(microseconds / 1e6)) == pytest.approx(microseconds / 1e6, abs=2e-6)
