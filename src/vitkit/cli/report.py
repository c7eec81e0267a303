from dataclasses import dataclass

from tyro.conf import Positional

from vitkit.cli.output import JsonOption, console, print_json


@dataclass(frozen=True)
class Report:
    """Write a self-contained HTML report of a run, or a comparison of several runs."""

    run_folders: Positional[tuple[str, ...]]
    """Folders written by `vitkit train`. Unfinished runs are allowed."""
    out: str | None = None
    """Output file. The default is report.html in the run's folder, or comparison.html here for several runs."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.report import write_report

        path = write_report(self.run_folders, self.out)
        if self.json:
            print_json({"report": str(path)})
        else:
            console().print(f"report  {path}", markup=False)
        return 0
