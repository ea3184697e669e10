"""Lines of Java properties, read as `java.util.Properties` reads them."""

import pytest

from settings.properties import WrongProperty, parse_properties


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=1", "a", "1"),
        ("a = 1 ", "a", "1"),
        ("a: 1", "a", "1"),
        ("a:1", "a", "1"),
        ("a 1", "a", "1"),
        ("a\t1 2", "a", "1 2"),
        ("a = = 1", "a", "= 1"),
        ("a=http://h:1/?b=c", "a", "http://h:1/?b=c"),
        ("a=", "a", ""),
        ("a", "a", ""),
        ("  a=1", "a", "1"),
        ("a\\:b=1", "a:b", "1"),
        ("a\\ b=1", "a b", "1"),
        ("a=1,\\\n   2,\\\r\n\t3", "a", "1,2,3"),
        ("a=\\\n1", "a", "1"),
        ("a=1\\\\", "a", "1\\"),
        ("a=1\\\n#2", "a", "1#2"),
        ("a=1\\", "a", "1"),
        ("a=\\u0041\\t\\n\\\\d", "a", "A\t\n\\d"),
        ("a=\\ud83d\\ude00", "a", "\U0001f600"),
        ("a=\u2028", "a", ""),
    ],
)
def test_a_setting_is_read_as_java_reads_it(text, key, value):
    [found] = parse_properties(f"# a comment \\\n! another one\n\n{text}\n")
    assert (found.key, found.value, found.line) == (key, value, 4)


def test_settings_after_a_continued_one_have_their_own_lines():
    found = parse_properties("a=1\\\n2\n\nb 3")
    assert [tuple(each) for each in found] == [("a", "12", 1), ("b", "3", 4)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n=1", "expected key=value, found '=1'"),
        ("\na=x-\\d+", "\\d is no escape of Java properties: write \\\\d for a backslash and 'd'"),
        ("\na=\\u12", "\\u is no escape of Java properties"),
    ],
)
def test_what_java_would_drop_in_silence_is_refused(text, reason):
    with pytest.raises(WrongProperty) as refused:
        parse_properties(text)
    assert refused.value.line == 2
    assert reason in str(refused.value)
