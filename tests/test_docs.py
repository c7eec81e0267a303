"""What README and docs show runs as it stands there, and what they link to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)):
            found.append((f"{page.relative_to(ROOT)}-{number}", code))
    return found


@pytest.mark.parametrize(("name", "code"), snippets(), ids=[name for name, _ in snippets()])
def test_snippet_runs(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {})


def test_there_are_snippets_at_all() -> None:
    assert {name.split("-")[0] for name, _ in snippets()} >= {"README.md", "docs/model.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if not link.startswith("http") and not (page.parent / link).exists()]
    assert not missing


def test_every_command_of_the_tour_exists() -> None:
    from vitkit.cli.main import COMMANDS

    used = set(re.findall(r"^\$ vitkit (\w+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert used
    assert used <= COMMANDS.keys()


def test_every_field_of_the_config_is_in_the_table_of_options() -> None:
    import dataclasses

    from vitkit.model import ViTConfig

    table = (ROOT / "docs" / "model.md").read_text()
    missing = {f.name for f in dataclasses.fields(ViTConfig)} - set(re.findall(r"`(\w+)", table)) - {"num_classes"}
    assert not missing
