"""`scan` of GGUF files: chat templates that only template are clean, and whatever could get at Python is reported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
from gguf import GGMLQuantizationType

import tensorkeep
from tensorkeep.scanner.models._templates import faults_of
from tests.support.formats.crafted_gguf import crafted, entry, info
from tests.support.formats.gguf_files import random_blocks, write_gguf

PLAIN = {
    "roles": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{{ message['content'] + '<|im_end|>'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "instructions": "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}{% endif %}{% endfor %}",
    "tools": "{%- macro render(properties, required=[]) -%}{%- for key, value in properties | dictsort -%}"
    "{{ key }}: {{ value | tojson(indent=2) }}{%- if not loop.last %}, {% endif -%}{%- endfor -%}{%- endmacro -%}"
    "{%- set ns = namespace(last=-1, parts=[]) -%}{%- for tool in tools or [] -%}"
    "{{- render(tool['function'].get('parameters', {}).items() | list, tool.required) -}}"
    "{%- set ns.last = loop.index0 -%}{%- endfor -%}{{ messages[ns.last + 1:][::-1] | length }}"
    "{%- if content is string and '</think>' in content -%}"
    "{{- (content.split('</think>') | last).lstrip('\n') -}}{%- endif -%}"
    "{{ messages[loop.index0 - 1].role if messages | length > 1 else none }}{{ strftime_now('%d %b %Y') }}",
    "dicts": "{# a comment with {{ x.__class__ }} #}{{ {'type': 'function', 'function': {'a': []}} | tojson }}"
    "{% raw %}{{ self.__init__ }}{% endraw %}{% set x = messages | selectattr('role', 'equalto', 'user') | list %}",
    "text": "It says __init__ and import os outside of tags. {{ 'and \u2581 inside' }}",
    "keys": "{{ value['items']['required'] }}{{ parts[seg | int] }}{{ ['a', 'b'][0:1] | join(' | ') }}",
}

RUNS = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('true') }}",
    "{{ lipsum.__globals__['os'].system('true') }}",
    "{{ self._TemplateReference__context.cycler.__init__.__globals__.os.getpid() }}",
    "{{ messages.__class__ }}",
    "{{ ().__class__.__base__.__subclasses__() | list }}",
    "{% for c in [].__class__.__base__.__subclasses__() %}{{ c }}{% endfor %}",
    "{{ namespace['__init__']['__globals__'] }}",
    "{{ namespace['\\x5f\\x5finit\\x5f\\x5f'] }}",
    "{{ namespace['\\137\\137init\\137\\137'] }}",
    "{{ namespace['\\u005f_init_\\u005f'] }}",
    "{{ namespace['\\N{LOW LINE}_init_\\N{LOW LINE}'] }}",
    "{{ namespace | attr('__init__') }}",
    "{{ namespace | attr('\\x5f_init_\\x5f') }}",
    "{{ [namespace] | map(attribute='__init__') | list }}",
    "{{ [namespace] | map('attr', '_' + '_init_' + '_') | list }}",
    "{{ namespace['_' ~ '_init_' ~ '_'] }}",
    "{{ namespace['_' '_init_' '_'] }}",
    "{{ namespace['%c%cinit%c%c' | format(95, 95, 95, 95)] }}",
    "{{ namespace['%c%cinit%c%c' % (95, 95, 95, 95)] }}",
    "{{ namespace[['_', '_', 'init', '_', '_'] | join] }}",
    "{% set u = 'tool_calls'[4] %}{{ namespace[u ~ u ~ 'init' ~ u ~ u] }}",
    "{% set k = dict(__init__=1) | first %}{{ namespace[k] }}",
    "{{ 1.__class__ }}",
    "{{ {'a': 1}.__class__ }}",
    "{{- namespace.\n__init__ -}}",
    "{% set x = namespace.__init__ %}",
    "{% if namespace.__init__ %}{% endif %}",
    "{% macro m(a=namespace.__init__) %}{{ a }}{% endmacro %}{{ m() }}",
    "{{ [lipsum][0]() }}",
    "{{ (lipsum)() }}",
    "{{ {'a': lipsum}['a']() }}",
    "{% set range = lipsum %}{{ range() }}",
    "{% filter attr('__init__') %}{% endfilter %}",
    "{% call namespace.__init__() %}{% endcall %}",
    "{% include 'other' ignore missing %}",
    "{% import 'other' as other %}",
]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_templates_are_clean(name: str) -> None:
    jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(PLAIN[name])

    assert faults_of(PLAIN[name]) == []


@pytest.mark.parametrize("template", RUNS)
def test_whatever_gets_at_python_is_reported(template: str) -> None:
    jinja2.Environment().parse(template)  # Jinja reads it

    assert faults_of(template)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ x.__class__ }}", "suspicious: the chat template reaches into Python's objects: '__class__'"),
        ("{{ x['\\x61ttr'] }}", "suspicious: the chat template hides letters: '\\\\x61ttr'"),
        ("{{ x[0]() }}", "suspicious: the chat template calls something that it computed"),
        ("{{ x.0() }}", "suspicious: the chat template calls something that it computed"),
        ("{{ run('x') }}", "unknown: the chat template calls 'run'"),
        ("{{ x.run('x') }}", "unknown: the chat template calls the method 'run'"),
        ("{{ x | run }}", "unknown: the chat template has the filter 'run'"),
        ("{% run %}", "unknown: the chat template has the statement 'run'"),
        ("{{ [range] }}", "unknown: the chat template uses 'range' without calling it"),
        ("{{ x[a ~ b] }}", "unknown: the chat template puts the names of attributes together"),
        ("{{ 'abc'[1] }}", "unknown: the chat template puts the names of attributes together"),
        ("{{ '_' }}", "unknown: the chat template has a piece of a name: '_'"),
        ("{{ x", "unknown: the chat template is not a template that Jinja reads"),
        ("{{ x %}", "unknown: the chat template is not a template that Jinja reads"),
        ("{# x", "unknown: the chat template is not a template that Jinja reads"),
        ("{{ x ? y }}", "unknown: the chat template is not a template that Jinja reads"),
        ("x" * 200_001, "unknown: the chat template is too long to look into"),
    ],
)
def test_each_fault_is_named_once(template: str, message: str) -> None:
    assert [f"{severity}: {text}" for severity, text in faults_of(template)] == [message]


@pytest.mark.parametrize("piece", ["{{", "{{ a", "{{ a[", "a[", "{{ '", "{% if", "{#", "{{ a }}", "(", "{{ {"])
def test_hostile_templates_take_no_time(piece: str) -> None:
    started = time.monotonic()

    faults_of((piece * 200_000)[:199_999])
    faults_of(("{{ " + piece * 200_000)[:199_999])

    assert time.monotonic() - started < 10


def scanned(path: Path) -> Any:
    (file,) = tensorkeep.scan(path).files
    return file


def test_files_without_a_template_are_clean(tmp_path: Path) -> None:
    q4_0 = GGMLQuantizationType.Q4_0
    write_gguf(tmp_path / "m.gguf", {"w": np.ones(3, np.float32)}, blocks={"q": (random_blocks(q4_0, 2, 1), q4_0)})

    report = tensorkeep.scan(tmp_path / "m.gguf")

    assert report.is_clean
    assert scanned(tmp_path / "m.gguf").form == "GGUF file"


def test_each_template_in_a_file_is_looked_into(tmp_path: Path) -> None:
    keys = {"tokenizer.chat_template": PLAIN["tools"], "tokenizer.chat_template.tool_use": "{{ x.__class__ }}"}
    write_gguf(tmp_path / "m.gguf", {}, keys=keys)

    (finding,) = scanned(tmp_path / "m.gguf").findings

    assert finding.severity == "suspicious"
    assert "(tokenizer.chat_template.tool_use)" in finding.message


def test_shards_are_scanned_one_by_one(tmp_path: Path) -> None:
    arrays = {name: np.ones(3, np.float32) for name in "abc"}
    write_gguf(tmp_path / "m.gguf", arrays, keys={"tokenizer.chat_template": RUNS[0]}, split_max_tensors=1)

    report = tensorkeep.scan(tmp_path)

    assert [len(file.findings) for file in report.files] == [3, 0, 0]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    content = crafted([entry("tokenizer.chat_template", "string", "{{ x }}")], [info("w", (2,), 200, 0)], bytes(8))
    (tmp_path / "unknown.gguf").write_bytes(content)
    (tmp_path / "cut.gguf").write_bytes(content[:40])

    (unknown,) = scanned(tmp_path / "unknown.gguf").findings
    (unreadable,) = scanned(tmp_path / "cut.gguf").findings

    assert (unknown.severity, unreadable.severity) == ("unknown", "unreadable")
