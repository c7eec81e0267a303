"""The model over HTTP, and the page. Batches, limits, and processes that may die of a bad image: docs/serve.md."""
