"""Checks the messages of commits: an imperative and short subject, and a body with the reason.

    uv run --no-sync python .ci/commits.py COMMIT     # the commits after COMMIT

Prints a line for each fault, and ends with 1 if there is one. A clone without COMMIT in its history passes.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUBJECT_LENGTH = 72
LINES_WITHOUT_REASON = 20
"""A commit that changes more lines than these needs a body."""
VOWEL = "[aeiouy]"


def main(since: str) -> int:
    """Prints the faults of the commits after a commit; returns the exit status."""
    faults = list(commit_faults(ROOT, since))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def commit_faults(root: Path, since: str) -> Iterator[str]:
    """Yields the faults of the commits after a commit; none if the clone does not hold that commit."""
    if _git(root, "merge-base", "--is-ancestor", since, "HEAD") is None:
        print(f"commits: not checked, because {since} is not in the history of this clone")
        return
    for commit in (_git(root, "rev-list", "--no-merges", f"{since}..HEAD") or "").split():
        message = _git(root, "show", "--no-patch", "--format=%B", commit) or ""
        counts = (_git(root, "show", "--numstat", "--format=", commit) or "").splitlines()
        lines = sum(int(count) for line in counts for count in line.split("\t")[:2] if count.isdigit())
        for fault in message_faults(message, lines):
            yield f"{commit[:10]}: {fault}"


def message_faults(message: str, lines: int) -> Iterator[str]:
    """Yields the faults of a commit's message.

    Args:
        message: The subject and the body.
        lines: The number of lines that the commit adds and takes away.
    """
    subject, _, body = message.strip().partition("\n")
    if not _is_imperative(subject.partition(" ")[0]):
        yield f"the first word of {subject!r} is no imperative"
    if len(subject) > SUBJECT_LENGTH:
        yield f"{subject!r} has {len(subject)} characters, more than {SUBJECT_LENGTH}"
    if lines > LINES_WITHOUT_REASON and not body.strip():
        yield f"{subject!r} changes {lines} lines, and has no body that gives the reason"


def _is_imperative(word: str) -> bool:
    """True if a word can be an imperative: it is a capitalised word without the ending of another form."""
    other = re.search(
        f"{VOWEL}.*ing$"  # adding, and not bring
        f"|{VOWEL}.*(?<!e)(?<!emb)ed$"  # added, and neither need nor embed
        "|[^su]s$"  # adds, and neither pass nor focus
        "|^(?:the|an?|no|not|this|that|these|those|it|what|who|which|whether|how|where|when|why)$",
        word.lower(),
    )
    return re.fullmatch("[A-Z][a-z]+(?:-[a-z]+)*", word) is not None and other is None


def _git(root: Path, *arguments: str) -> str | None:
    """Returns the output of a git command; None if it fails, or if there is no git."""
    try:
        run = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return run.stdout if run.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
