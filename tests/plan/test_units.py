"""Amounts are parsed and formatted with their units."""

import pytest

from vitkit.plan.units import format_bytes, format_seconds, parse_bytes


@pytest.mark.parametrize(("text", "count"), [("80GB", 80e9), ("6 GiB", 6 * 2**30), ("512mb", 512e6), ("1.5TB", 1.5e12)])
def test_amounts_are_parsed(text: str, count: float) -> None:
    assert parse_bytes(text, "--memory") == count


@pytest.mark.parametrize("text", ["", "much", "6 XB", "-6GB", "0GB"])
def test_other_texts_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match="--memory"):
        parse_bytes(text, "--memory")


def test_amounts_are_formatted_in_the_largest_suitable_unit() -> None:
    assert [format_bytes(n) for n in (0, 512, 3 * 2**20, 4.25 * 2**30)] == ["0", "0.5 KiB", "3.0 MiB", "4.2 GiB"]
    assert [format_seconds(s) for s in (0, 0.0021, 90, 9000, 2e5)] == ["0", "2.1 ms", "90.0 s", "2.5 h", "2.3 days"]
