"""A run folder in, one HTML file out: curves, tables, pictures. It needs no network and no other file."""

from vitkit.report.run_report import write_report

__all__ = ["write_report"]
