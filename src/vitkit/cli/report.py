from dataclasses import dataclass

from tyro.conf import Positional

from vitkit.cli.output import JsonOption, console, print_json


@dataclass(frozen=True)
class Report:
    """Write a self-contained HTML report of a run, or a comparison of several runs or of two recipes."""

    run_folders: Positional[tuple[str, ...]]
    """Folders written by `vitkit train`. Unfinished runs are allowed."""
    against: tuple[str, ...] = ()
    """Compare the recipe of RUN_FOLDERS with the recipe of these runs, over the seeds of both."""
    out: str | None = None
    """Output file. The default is report.html in the run's folder, or comparison.html here for several runs."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.report import write_report
        from vitkit.report.compare_runs import compare_runs

        path = write_report(self.run_folders, self.out, self.against)
        recipes = compare_runs(self.run_folders, self.against) if self.against else None
        if self.json:
            print_json({"report": str(path), **({"recipes": recipes.to_dict()} if recipes else {})})
        else:
            if recipes:
                console().print(recipes.summary(self.run_folders[0], self.against[0]), markup=False, soft_wrap=True)
            console().print(f"report  {path}", markup=False)
        return 0
