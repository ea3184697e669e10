"""Any frozen dataclass of keys can be read. Most of the rules are tested with the broker's keys."""

from dataclasses import dataclass

import pytest

from settings.kinds import NoneAtZero, Port
from settings.reading import ConfigError, Setting, build_config, load_config
from settings.rules import Alias, KeyRules


@dataclass(frozen=True)
class Lamp:
    port: Port = 80
    colours: tuple[str, ...] = ("red",)
    brightness: NoneAtZero = 0
    bulbPassword: str = ""

    def __post_init__(self):
        if not self.colours:
            raise ValueError("colours must name one at least")


RULES = KeyRules(
    config_type=Lamp,
    aliases={"colour": Alias("colours", wins=False)},
    refused={"zkEnableSecurity": "there are no access control lists"},
    not_applicable={"brokerServicePort": "a lamp is no broker"},
    protecting=frozenset({"brightness"}),
    check_together=lambda lamp: "too bright" if lamp.brightness > lamp.port else "",
)


def build(*lines):
    pairs = [line.partition("=") for line in lines]
    return build_config(RULES, [Setting(key, value, "x:1") for key, _, value in pairs], {})


def test_values_have_the_types_of_the_fields():
    assert build("port=1", "colour=a, b", "brightness=-3").config == Lamp(1, ("a", "b"), 0)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("port=x", "expected a whole number of at least 0 and at most 65535"),
        ("colours=,", "colours must name one at least"),
        ("brightness=81", "too bright"),
        ("brightnes=1", "did you mean 'brightness'"),
        ("zkEnableSecurity=true", "is not supported: there are no access control lists"),
    ],
)
def test_an_error_is_one_line(line, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build(line)


def test_a_key_of_upstream_without_effect_is_told_with_the_reason():
    [notice] = build("zkTimeout=77").notices
    assert (notice.setting.key, notice.text) == ("zkTimeout", "has no effect")


def test_a_variable_overrides_a_file(tmp_path):
    path = tmp_path / "lamp.conf"
    path.write_text("port=1\ncolours=a\n")
    loaded = load_config(RULES, [path], {"PULSAR_PREFIX_port": "2"})
    assert loaded.config == Lamp(2, ("a",))
