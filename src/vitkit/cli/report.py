from dataclasses import dataclass

from tyro.conf import Positional

from vitkit.cli.output import console, print_json


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML file about a run, or one that compares several."""

    run_folders: Positional[tuple[str, ...]]
    """Folders that `vitkit train` made; a run that goes on or was stopped shows what there is so far."""
    out: str | None = None
    """Where to write; by default report.html in the run's folder, for several runs comparison.html in this one."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.report import write_report

        path = write_report(self.run_folders, self.out)
        if self.json:
            print_json({"report": str(path)})
        else:
            console().print(f"report  {path}", markup=False)
        return 0
