"""One module per input format: folder, CSV, parquet, npz, built-in data sets."""
