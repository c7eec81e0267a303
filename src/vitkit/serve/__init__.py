"""The model over HTTP, and the page. Batches, limits, processes that may die of a bad image: docs/guides/serve.md."""
