import pytest

from tests.changed import ALWAYS, named_for


@pytest.fixture
def tree(tmp_path):
    for path, text in {
        "room/thing.py": "",
        "room/other.py": "",
        "room/inner/deep.py": "",
        "room/tests/test_thing.py": "from room.thing import it",
        "room/tests/test_all.py": "from room import thing",
        "room/tests/test_things.py": "from room.things import it",
        "tests/test_server.py": "from room.thing import it",
        "compat_tests/test_clients.py": "from room.thing import it",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_a_module_has_the_tests_that_import_it(tree):
    assert named_for(["room/thing.py"], tree) == [
        "room/tests/test_all.py",
        "room/tests/test_thing.py",
        ALWAYS,
    ]


def test_a_module_that_no_test_names_has_those_of_its_room(tree):
    everything = ["room/tests/test_all.py", "room/tests/test_thing.py", "room/tests/test_things.py"]

    assert named_for(["room/inner/deep.py"], tree) == [*everything, ALWAYS]


def test_a_test_that_changed_is_run_wherever_it_is_but_for_comparisons(tree):
    changed = ["tests/test_server.py", "compat_tests/test_clients.py", "room/tests/test_gone.py"]

    assert named_for(changed, tree) == [ALWAYS, "tests/test_server.py"]


def test_pages_have_no_tests_of_their_own(tree):
    assert named_for(["docs/testing.md"], tree) == [ALWAYS]
