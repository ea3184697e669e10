"""`python -m pipeline JOB ...`, which `vela pipeline JOB ...` becomes."""

from __future__ import annotations

import sys
from importlib import import_module

from pipeline.jobs import JOBS, module_of, usage


def main(arguments: list[str]) -> int:
    """Run one job; the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    name, *rest = arguments
    if name not in JOBS:
        print(f"vela pipeline: no job {name!r}; jobs: {', '.join(JOBS)}", file=sys.stderr)
        return 2
    from pipeline.jobs.command import run  # which needs what only the jobs' environment has

    return run(name, import_module(module_of(name)).main, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
