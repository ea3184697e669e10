"""The text format of Prometheus: families with HELP and TYPE, samples with escaped labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class Page:
    """Collects samples by family, so that each family is written once and in one piece."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, str, list[str]]] = {}

    def family(self, name: str, kind: str, help_text: str) -> list[str]:
        """The lines of a family; `kind` is gauge, counter, summary or untyped."""
        known = self._families.get(name)
        if known is None:
            known = self._families[name] = (kind, help_text, [])
        return known[2]

    def add(self, name: str, kind: str, help_text: str, labels: str, value: float) -> None:
        """One sample; `labels` as made by `label_text`."""
        line = f"{name}{labels} {_number(value)}"
        self.family(name, kind, help_text).append(line)

    def text(self) -> str:
        """The whole page."""
        lines: list[str] = []
        for name, (kind, help_text, samples) in self._families.items():
            lines.append(f"# HELP {name} {help_text}")
            lines.append(f"# TYPE {name} {kind}")
            lines += samples
        lines.append("")
        return "\n".join(lines)


def label_text(labels: Mapping[str, str]) -> str:
    """`{a="b",c="d"}` with quotes, backslashes and line breaks escaped."""
    parts = [f'{name}="{_escape(value)}"' for name, value in labels.items()]
    return "{" + ",".join(parts) + "}" if parts else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
