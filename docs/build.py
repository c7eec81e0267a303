"""Build the site: `python docs/build.py`, or `python3 dev.py docs`, writes site/index.html. Any warning is an error.

The pages are plain Markdown that a code host renders too. They are copied to build/docs with what the site adds:
a table of contents, the executed chapters of docs/learn, and a page for every source file that a page links to.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

# The parts in order, and the first pages of each; other pages follow by name.
PARTS = {
    "start": ("Start", ["install", "demo", "your-images"]),
    "learn": ("Learn", ["README"]),
    "guides": ("Guides", ["fine-tune", "python", "small-data", "imbalance", "channels", "resolution", "data", "explain",
                          "report", "weights", "export", "serve", "scale", "plan", "shards", "reproduce"]),
    "reference": ("Reference", ["commands", "python", "recipes", "model"]),
    "decisions": ("Decisions", ["README"]),
}  # fmt: skip
LINK = re.compile(r"(\]\()([^)\s#]+)?(#[^)\s]*)?(\))")
FENCE = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.M | re.S)
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".jsonl": "text", ".css": "css", ".js": "javascript",
             ".yaml": "yaml", ".sbatch": "bash"}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder for the site; site by default")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build", help="folder for intermediate files; build by default"
    )
    parser.add_argument("--no-run", action="store_true", help="do not run chapters that changed")
    asked = parser.parse_args()
    chapters = asked.work / "learn"
    if not asked.no_run:
        run_chapters(chapters)
    pages = lay_out(asked.work / "docs", chapters)
    print(f"{pages} pages", flush=True)
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "-d", str(asked.work / "doctrees")]
    command += ["-c", str(DOCS / "sphinx"), str(asked.work / "docs"), str(asked.out)]
    return subprocess.call([sys.executable, *command])


# ---------------------------------------------------------------------------------------------------------- chapters


def run_chapters(out: Path) -> None:
    """Run the chapters that are newer than their output, or all of them if the library is newer."""
    shared = [DOCS / "learn" / "lib.py", *(ROOT / "src").rglob("*.py")]
    stale = [p.stem for p in chapters() if not all(fresh(out / f"{p.stem}.md", each) for each in (p, *shared))]
    if stale:
        print("running", *stale, flush=True)
        subprocess.run([sys.executable, DOCS / "learn" / "build.py", *stale, "--out", out], check=True)


def chapters() -> list[Path]:
    return sorted((DOCS / "learn").glob("[0-9][0-9]_*.py"))


def fresh(shown: Path, source: Path) -> bool:
    return shown.exists() and shown.stat().st_mtime >= source.stat().st_mtime


def unrun(path: Path) -> str:
    """Return the text and code of a chapter, without outputs."""
    sys.path.insert(0, str(DOCS / "learn"))
    spec = importlib.util.spec_from_file_location("learn_build", DOCS / "learn" / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return str(module.to_markdown(module.read(path), path.parent))


# ------------------------------------------------------------------------------------------------------------ layout


class Layout:
    """Maps files of the repository to pages: files of docs/ keep their path, others go under source/."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.done: dict[Path, Path] = {}  # file of the repository → page or picture in the site
        self.waiting: list[Path] = []

    def place(self, path: Path) -> Path:
        """Return the path of this file in the site, or of a page that shows it; queue it if it is new."""
        path = path / "README.md" if (path / "README.md").exists() else path
        if path in self.done:
            return self.done[path]
        inside = path.is_relative_to(DOCS)
        if path.suffix == ".md":
            at = path.relative_to(DOCS) if inside else Path("source") / path.relative_to(ROOT)
        elif path.parent == DOCS / "learn" and path in chapters():
            at = path.relative_to(DOCS).with_suffix(".md")
        elif path.suffix in (".png", ".webp", ".svg", ".jpg"):
            at = path.relative_to(DOCS) if inside else Path("source") / path.relative_to(ROOT)
        elif path.is_dir():
            at = Path("source") / path.relative_to(ROOT) / "index.md"
        else:
            at = Path("source") / f"{path.relative_to(ROOT)}.md"
        self.done[path] = at
        self.waiting.append(path)
        return at

    def write_all(self, chapters_: Path) -> None:
        while self.waiting:
            path = self.waiting.pop()
            at = self.out / self.done[path]
            at.parent.mkdir(parents=True, exist_ok=True)
            if at.suffix != ".md":
                shutil.copy(path, at)
            elif path.suffix == ".md":
                at.write_text(self.linked(path.read_text(encoding="utf-8"), path, at), encoding="utf-8")
            elif self.done[path].parts[0] == "learn":
                shown = chapters_ / f"{path.stem}.md"
                text = shown.read_text(encoding="utf-8") if fresh(shown, path) else unrun(path)
                figures = chapters_ / "figures"
                if figures.is_dir():
                    shutil.copytree(figures, at.parent / "figures", dirs_exist_ok=True)
                at.write_text(self.linked(text, path, at), encoding="utf-8")
            else:
                at.write_text("---\norphan: true\n---\n" + self.source(path, at), encoding="utf-8")

    def source(self, path: Path, at: Path) -> str:
        name = path.relative_to(ROOT)
        if path.is_dir():
            inside = [p for p in sorted(path.iterdir()) if p.name != "__pycache__" and not p.name.startswith(".")]
            shown = [p for p in inside if p.is_dir() or p.suffix in (*LANGUAGES, ".txt", ".md")]
            links = [f"- [{p.name}]({os.path.relpath(self.out / self.place(p), at.parent)})" for p in shown]
            return f"# {name}/\n\n" + "\n".join(links) + "\n"
        text = path.read_text(encoding="utf-8")
        fence = "`" * (3 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
        return f"# {name}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"

    def linked(self, text: str, path: Path, at: Path) -> str:
        """Return the text with links to repository files replaced by links to their pages. Code is unchanged."""

        def target(found: re.Match[str]) -> str:
            to, anchor = found[2], found[3] or ""
            if not to or re.match(r"[a-z]+:", to):
                return found[0]
            meant = (path.parent / to).resolve()
            if not meant.exists():  # a figure of a chapter; Sphinx reports links that are wrong
                return found[0]
            place = self.place(meant)
            anchor = anchor if meant.suffix == ".md" else ""
            return f"{found[1]}{os.path.relpath(self.out / place, at.parent)}{anchor}{found[4]}"

        parts, last = [], 0
        for fence in FENCE.finditer(text):
            parts += [LINK.sub(target, text[last : fence.start()]), fence[0]]
            last = fence.end()
        head = "" if path.is_relative_to(DOCS) else "---\norphan: true\n---\n"
        return head + "".join(parts) + LINK.sub(target, text[last:])


def lay_out(out: Path, chapters_: Path) -> int:
    shutil.rmtree(out, ignore_errors=True)
    layout = Layout(out)
    for path in [*sorted(DOCS.rglob("*.md")), *chapters()]:
        layout.place(path)
    layout.write_all(chapters_)
    index = out / "index.md"
    index.write_text(index.read_text(encoding="utf-8") + "".join(contents(out)), encoding="utf-8")
    return len(list(out.rglob("*.md")))


def contents(out: Path) -> list[str]:
    """Return the table of contents: one list per part."""
    trees = []
    for folder, (title, first) in PARTS.items():
        there = sorted(str(p.relative_to(out).with_suffix("")) for p in (out / folder).glob("*.md"))
        ordered = [f"{folder}/{name}" for name in first if f"{folder}/{name}" in there]
        ordered += [page for page in there if page not in ordered]
        trees.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(ordered) + "\n```\n")
    return trees


if __name__ == "__main__":
    sys.exit(main())
