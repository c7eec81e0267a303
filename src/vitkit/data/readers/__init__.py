"""One module per input format: folders, CSV, parquet, .npz, shards, built-in data sets."""
