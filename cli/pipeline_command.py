"""`vela pipeline JOB ...`: runs a job in the pipeline's own environment.

Spark and its dependencies are twenty times the size of the broker, so the jobs have an environment
of their own (`make setup-pipeline`), and nothing here imports them: this process becomes `python -m
pipeline` of that environment.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

PYTHON_VARIABLE: Final = "VELA_PIPELINE_PYTHON"
ENVIRONMENT: Final = ".venv-pipeline"


def pipeline_python(environment: Mapping[str, str], tree: Path) -> str | None:
    """The interpreter that has pyspark: the named one, that of `make setup-pipeline`, or this one;
    None when there is none."""
    named = environment.get(PYTHON_VARIABLE)
    if named:
        return named
    for place in (tree, Path(sys.prefix).parent):
        python = place / ENVIRONMENT / "bin" / "python"
        if python.exists():
            return str(python)
    return sys.executable if find_spec("pyspark") else None


@click.command("pipeline", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run a Spark job. Needs the environment that `make setup-pipeline` makes."""
    tree = Path(__file__).parents[1]
    is_help = arguments[:1] in ((), ("-h",), ("--help",))  # which lists the jobs and needs no Spark
    python = sys.executable if is_help else pipeline_python(os.environ, tree)
    if python is None:
        raise click.ClickException(
            "the pipeline has an environment of its own: run `make setup-pipeline`, or let "
            f"{PYTHON_VARIABLE} name a Python that has pyspark"
        )
    os.environ["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(tree), os.environ.get("PYTHONPATH", "")) if part
    )
    try:
        os.execv(python, [python, "-m", "pipeline", *arguments])
    except OSError as error:
        raise click.ClickException(f"{python} cannot be started: {error.strerror}") from None
