"""vitkit: Vision Transformers that read like the paper and work like a tool."""

__version__ = "0.1.0"
