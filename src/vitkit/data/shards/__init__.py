"""WebDataset tars and parquet shards: storage, index, reader, writer."""
