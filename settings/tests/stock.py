"""The configuration files of three server distributions: keys and values, without comments."""

from pathlib import Path

FACTS = Path(__file__).with_name("stock_configuration.txt")
VERSIONS = ("2.10.1", "3.3.6", "4.0.8")
FILES = {"broker": "b", "standalone": "s", "bookkeeper": "k"}


def stock_lines(version: str, file: str) -> list[str]:
    """`key=value` lines of one file."""
    column = 4 * VERSIONS.index(version)
    facts = [line for line in FACTS.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    return [line[12:] for line in facts if FILES[file] in line[column : column + 3]]
