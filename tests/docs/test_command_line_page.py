"""The reference of the command line is what the commands say."""

from __future__ import annotations

from tests.support.command_line_page import PAGE, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it: python -m tests.support.command_line_page"


def test_commands_in_the_text_are_code_as_a_whole() -> None:
    assert "`tensorkeep verify PATH --trust KEY.pub`" in page()
