from dataclasses import dataclass

from tyro.conf import Positional

from vitkit.cli.show import console, print_json


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML file about a run."""

    run_folder: Positional[str]
    """The folder that `vitkit train` made."""
    out: str | None = None
    """Where to write; report.html in the run folder by default."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.report import write_report

        path = write_report(self.run_folder, self.out)
        if self.json:
            print_json({"report": str(path)})
        else:
            console().print(f"report  {path}", markup=False)
        return 0
