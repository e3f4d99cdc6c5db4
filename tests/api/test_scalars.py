from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from slipway.api.scalars import DecimalString, Duration, Quantity, format_duration, quantity_value
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1n", "1e-9"),
        ("1000u", "1e-3"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-1500m", "-1.5"),
        ("1e3", "1000"),
        ("12E6", "12000000"),
        ("2E", "2e18"),
        ("7Ei", str(7 * 2**60)),
        ("0.1", "0.1"),
        ("1.0000000001m", "0.001000001"),
        ("1e-999999999999", "1e-9"),
        ("8Ei", str(2**63 - 1)),
        ("9" * 30 + "Gi", str(2**63 - 1)),
        ("9" * 300, "9" * 300),
        ("9" * 30 + "k", "9" * 30 + "000"),
    ],
)
def test_every_notation_of_a_quantity_is_taken_as_an_api_server_takes_it(text: str, value: str) -> None:
    assert quantity_value(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", ".", "1 ", "1K", "1mi", "1e", "0x1", "1,5", "inf", "1e1.5", "\u0661"])
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity_value(text)


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
