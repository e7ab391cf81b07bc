"""The check of commit messages (.ci/commits.py), on messages and on a repository."""

import runpy
import subprocess
from pathlib import Path

import pytest

COMMITS = runpy.run_path(str(Path(__file__).parent.parent.parent / ".ci" / "commits.py"))


@pytest.mark.parametrize(
    "word", ["Add", "Need", "Bring", "Process", "Pass", "Focus", "Re-read", "Let", "Ping"]
)
def test_a_subject_may_begin_with_an_imperative(word: str) -> None:
    assert list(COMMITS["message_faults"](f"{word} a clock without its times", 5)) == []


@pytest.mark.parametrize("word", ["Added", "Adds", "Adding", "Does", "The", "What", "fix:", "add", "Stopped"])
def test_a_subject_begins_with_no_other_form(word: str) -> None:
    assert len(list(COMMITS["message_faults"](f"{word} a clock without its times", 5))) == 1


def test_a_subject_is_short_and_a_larger_change_gives_its_reason() -> None:
    assert list(COMMITS["message_faults"]("Add " + "x" * 68, 20)) == []
    assert len(list(COMMITS["message_faults"]("Add " + "x" * 69, 20))) == 1
    assert len(list(COMMITS["message_faults"]("Add a clock", 21))) == 1
    assert list(COMMITS["message_faults"]("Add a clock\n\nThe times were wrong.\n", 21)) == []


def test_commits_after_a_commit_are_checked_and_a_clone_without_it_passes(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(tmp_path), *settings, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    for subject in ("Fixed it", "Add it", "Adds it"):
        (tmp_path / "file").write_text(subject)
        git("add", "file")
        git("commit", "--quiet", "--message", subject)
    first = git("rev-list", "--max-parents=0", "HEAD")
    found = list(COMMITS["commit_faults"](tmp_path, first))
    assert len(found) == 1
    assert "'Adds it' is no imperative" in found[0]
    assert list(COMMITS["commit_faults"](tmp_path, "0" * 40)) == []
    assert list(COMMITS["commit_faults"](tmp_path / "nowhere", first)) == []
