"""CONTRIBUTING names every file that a new option of the model must touch: a toy option is added to a copy."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

CASE = [('    "plain": {},\n', '    "plain": {},\n    "toy": dict(toy_gain=True),\n')]

# The toy option, a learned factor on the tokens before the blocks: old and new text by file
CHANGES = {
    "src/vitkit/model/config.py": [
        ("    pre_norm: bool", "    toy_gain: bool = False  # a learned factor per channel\n    pre_norm: bool"),
    ],
    "src/vitkit/model/vit.py": [
        (
            "        self.norm_pre = make_norm",
            "        self.toy = nn.Parameter(torch.empty(c.width)) if c.toy_gain else None\n"
            "        self.norm_pre = make_norm",
        ),
        (
            "return self.norm_pre(self.pos_drop(torch.cat(tokens, dim=1))), rope",
            "x = self.norm_pre(self.pos_drop(torch.cat(tokens, dim=1)))\n"
            "        return (x if self.toy is None else x * self.toy), rope",
        ),
    ],
    "src/vitkit/model/init.py": [
        (
            '    for name in ("cls_token"',
            '    if getattr(model, "toy", None) is not None:\n        nn.init.ones_(model.toy)\n'
            '    for name in ("cls_token"',
        ),
    ],
    "src/vitkit/plan/activations.py": [
        ("    if c.patch_norm:\n", "    saved += t * FLOAT * c.width * c.toy_gain\n    if c.patch_norm:\n"),
    ],
    "docs/reference/model.md": [("| norm before the first", "| a factor | `toy_gain` | | |\n| norm before the first")],
    "tests/model/small.py": CASE,
    "tests/plan/test_activations.py": CASE,
}

# What shows that the change of a file was forgotten
CREATE = "import vitkit; vitkit.create_model('vit_digits_patch2_8', toy_gain=True)"
CHECKS = {
    "src/vitkit/model/config.py": ["-c", CREATE],
    "src/vitkit/model/init.py": ["-c", CREATE],
    "src/vitkit/plan/activations.py": ["-m", "pytest", "tests/plan/test_activations.py", "-k", "toy"],
    "docs/reference/model.md": ["-m", "pytest", "tests/docs/test_reference.py", "-k", "table_of_options"],
    "tests/model/small.py": ["-m", "pytest", "tests/model/test_init.py", "tests/model/test_summary.py", "-k", "toy"],
}
EXPORT = (
    "import vitkit; from vitkit.weights.convert import write_model; "
    "write_model(vitkit.create_model('vit_tiny_patch16_224', toy_gain=True, depth=1), 'out', 'timm')"
)


def named_files() -> list[str]:
    """Return the files and folders that the section of the page names."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split("## Add an option to the model")[1].split("\n## ")[0]
    return re.findall(r"`((?:src|tests|docs)/[^` ]+)`", section[section.index("\n1. ") :])


def copy_with_option(folder: Path, without: str = "") -> Path:
    """Return a copy of the code with the toy option, changed in the files that the page names except one."""
    for part in ("src", "tests", "docs/reference", "pyproject.toml"):
        source, target = ROOT / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for path, changes in CHANGES.items():
        if path != without and path.startswith(tuple(named_files())):
            for old, new in changes:
                text = (folder / path).read_text(encoding="utf-8")
                assert text.count(old) == 1, f"{path} no longer has {old!r}: update this test"
                (folder / path).write_text(text.replace(old, new), encoding="utf-8")
    return folder


def run(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(folder / "src"), "PATH": "", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_files_of_the_page_exist_and_are_all_that_the_option_touches() -> None:
    named = named_files()
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert [path for path in CHANGES if not path.startswith(tuple(named))] == []


def test_the_steps_of_the_page_are_enough(tmp_path: Path) -> None:
    folder = copy_with_option(tmp_path)
    for words in CHECKS.values():
        done = run(folder, words)
        assert done.returncode == 0, f"{words}: {done.stdout[-800:]}{done.stderr[-800:]}"
    assert "timm cannot store a model with toy_gain=True" in run(folder, ["-c", EXPORT]).stderr


@pytest.mark.parametrize("forgotten", CHECKS)
def test_each_step_is_needed(tmp_path: Path, forgotten: str) -> None:
    done = run(copy_with_option(tmp_path, without=forgotten), CHECKS[forgotten])
    assert done.returncode != 0, f"nothing fails without {forgotten}"
