import pytest

from vitkit.cli.sizes import pixel_sizes
from vitkit.errors import ConfigError


@pytest.mark.parametrize("words", [("160,224,288",), ("160", "224", "288"), ("160,", "224,288")])
def test_sizes_are_parted_by_commas_or_spaces(words: tuple[str, ...]) -> None:
    assert pixel_sizes(words) == (160, 224, 288)


@pytest.mark.parametrize("word", ["0", "-8", "8.5", "large"])
def test_what_is_no_size_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match=f"--sizes 224 {word}: expected image sizes"):
        pixel_sizes(("224", word))
