"""Reports of runs: one self-contained HTML file with curves, tables and example images."""

from vitkit.report.write import LiveReport, write_report

__all__ = ["LiveReport", "write_report"]
