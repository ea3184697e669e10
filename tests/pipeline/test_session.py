"""The Spark session of the jobs: its defaults give way to what the user says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

TREE = Path(__file__).resolve().parents[2]
PROGRAM = """\
import json
from pipeline.session import session
spark = session("settings")
names = ("spark.master", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
print(json.dumps([spark.conf.get(name) for name in names]))
"""


def test_what_spark_submit_says_wins(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    submit = which("spark-submit", path=str(Path(sys.executable).parent))
    assert submit is not None
    command = [submit, "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=7"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}

    ended = subprocess.run(
        [*command, str(program)],
        env={**os.environ, **python, "PYTHONPATH": str(TREE)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == ["local[1]", "7", "UTC"]
