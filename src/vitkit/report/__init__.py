"""Run folders in, one HTML file out: curves, tables, pictures. It needs no network and no other file."""

from vitkit.report.write import LiveReport, write_report

__all__ = ["LiveReport", "write_report"]
