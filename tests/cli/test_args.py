import pytest

from vitkit.cli.args import parse_image_sizes
from vitkit.errors import ConfigError


@pytest.mark.parametrize("words", [("160,224,288",), ("160", "224", "288"), ("160,", "224,288")])
def test_sizes_are_parted_by_commas_or_spaces(words: tuple[str, ...]) -> None:
    assert parse_image_sizes(words) == (160, 224, 288)


@pytest.mark.parametrize("word", ["0", "-8", "8.5", "large"])
def test_what_is_no_size_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match=f"--sizes 224 {word}: expected image sizes"):
        parse_image_sizes(("224", word))
