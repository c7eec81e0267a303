"""Serve models over HTTP, with a web page. docs/guides/serve.md describes batching, limits and decoder processes."""
