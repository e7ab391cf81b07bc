"""Pages of the site beside docs/: README.md as its first page, and a page for each linked source file.

Pages link as in a checkout. So a link that leads nowhere there fails the build, as all warnings do.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
HOME = "index.md"
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
# Source files would hide the pages that explain them.
_NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
_LANGUAGES = {".acl": "text", ".py": "python", ".ts": "typescript", ".yaml": "yaml", ".yml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds README.md, and the files outside docs/ that pages link to."""
    readme = (ROOT / "README.md").read_text()
    files.append(File.generated(config, HOME, content=_LINK.sub(_from_home, readme)))
    linked = {path for page in (ROOT / "README.md", *DOCS.rglob("*.md")) for path in _outside(page)}
    for path in sorted(linked):
        text = path.read_text()
        fence = "`" * (3 + max((len(ticks) for ticks in re.findall("`{3,}", text)), default=0))
        name = path.relative_to(ROOT).as_posix()
        content = (
            f"{_NOT_SEARCHED}# {name}\n\n{fence} {_LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"
        )
        files.append(File.generated(config, _source_page(path), content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to files outside docs/ to their pages."""
    source = page.file.abs_src_path
    if source is None or page.file.src_uri == HOME:
        return markdown
    folder = Path(source).parent

    def target(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        up = "../" * page.file.src_uri.count("/")
        return f"{up}{_source_page(path)}" if _is_outside(path) else link[1]

    return _LINK.sub(target, markdown)


def _from_home(link: re.Match[str]) -> str:
    path = (ROOT / link[1]).resolve()
    return _source_page(path) if _is_outside(path) else link[1].removeprefix("docs/")


def _outside(page: Path) -> Iterator[Path]:
    for link in _LINK.findall(page.read_text()):
        path = (page.parent / link).resolve()
        if _is_outside(path):
            yield path


def _is_outside(path: Path) -> bool:
    return path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)


def _source_page(path: Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}.md"
