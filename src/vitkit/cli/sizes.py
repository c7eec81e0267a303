def pixel_sizes(words: tuple[str, ...]) -> tuple[int, ...]:
    """Of an option that takes image sizes: 224 288, or 224,288."""
    from vitkit.errors import ConfigError

    numbers = [number for word in words for number in word.split(",") if number]
    if not all(number.isdecimal() and int(number) for number in numbers):
        raise ConfigError(f"--sizes {' '.join(words)}: expected image sizes in pixels, such as 224,288")
    return tuple(int(number) for number in numbers)
