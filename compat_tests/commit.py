"""The commit that a result is of."""

from __future__ import annotations

import subprocess

from compat_tests.oracle.distribution import TREE


def commit(results: str) -> str:
    """The commit of this tree, marked when tracked files other than `results` differ from it; a
    pattern as git takes it, for the files that a run itself writes."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(
            ["git", *arguments], cwd=TREE, capture_output=True, text=True, check=False
        )
        return ran.stdout.strip() if ran.returncode == 0 else ""

    changed = git("status", "--porcelain", "-uno", "--", ".", f":!{results}")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (
        " with changes" if changed else ""
    )
