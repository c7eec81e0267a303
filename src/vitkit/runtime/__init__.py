"""Where a model runs: device and precision, cores, timing, caches."""
