"""`scan` of GGUF files: chat templates that only template are clean, and whatever could get at Python is reported."""

from __future__ import annotations

import os
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
    "computed keys": "{% set i = messages | length - 1 %}{% set j = loop.index0 % 2 %}{{ messages[i][j + 1] }}"
    "{% set ns = namespace(index=0, text='') %}{% set ns.index = ns.index + 1 %}{{ messages[ns.index]['content'] }}"
    "{% for name, kind in tool.parameters.properties.items() %}{{ name + ': ' + kinds[name] }}{% endfor %}"
    "{% set content = '<think>' + message.content %}{{ message['content'] }}{{ content.split('</think>')[-1] }}"
    "{% set tools = tools + [tool] %}{% set _ = tools.append(x + 'y') %}"
    "{{ tools | map(attribute='name') | join(', ') }}"
    "{{ param.format }}{% if param['format'] is defined %}{{ content[:20] }}{% endif %}",
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
    "{% set k = '%c%cinit%c%c' % (95, 95, 95, 95) %}{{ messages[k] }}",
    "{% set u = '%c%c' % (95, 95) %}{% for i in [1] %}{{ loop[u ~ 'init' ~ u][u ~ 'globals' ~ u] }}{% endfor %}",
    "{% set u = '%c%c' % (95, 95) %}{% set k = u ~ 'init' ~ u %}{{ loop[k] }}",
    "{% set s = 'a_b' %}{% set u = s[1] %}{% set k = u + u %}{{ messages[k] }}",
    "{% set k %}{{ 'a_b'.strip('ab') }}{% endset %}{{ messages[k] }}",
    "{% set k | trim %}x{% endset %}{{ messages[k] }}",
    "{% macro m() %}x{% endmacro %}{{ messages[m()] }}",
    "{% macro m(k) %}{{ messages[k] }}{% endmacro %}{{ m(a + b) }}",
    "{% set ns = namespace() %}{% set ns.k = a ~ b %}{{ messages[ns.k] }}",
    "{% set ns = namespace(k=a ~ b) %}{{ messages[ns['k']] }}",
    "{% set l = [] %}{{ l.append(a ~ b) }}{{ messages[l[0]] }}",
    "{% set d = {'x': []} %}{{ d['x'].append(a ~ b) }}{{ messages[d.x[0]] }}",
    "{% for k in [a ~ b] %}{{ messages[k] }}{% endfor %}",
    "{% with k = a ~ b %}{{ messages[k] }}{% endwith %}",
    "{% set c = k %}{% set k = b %}{% set b = 'x'.replace('x', a) %}{{ messages[c] }}",
    "{{ messages[strftime_now(a)] }}{{ messages[bos_token] }}",
    "{% set n = {'a': a}.a * 2 %}{{ messages[n] }}",
    "{% set n = 2 * a %}{{ messages[n] }}",
    "{% set n = d.0 + d.0 %}{{ messages[n] }}",
    "{% set n = d + 1 | string %}{{ messages[n] }}",
    "{{ messages | map(attribute=a ~ b) | list }}",
    "{% set k = a ~ b %}{{ messages | map(attribute=k) | list }}",
    "{% set k = a ~ b %}{{ messages | selectattr(k) | list }}",
    "{{ messages | map('at' 'tr', k) | list }}",
    "{{ messages | map(k, 95) | list }}",
    "{{ messages | map('format', 95) | list }}",
    "{{ messages | sort(**{'attribute': k}) }}",
    "{% set ns = namespace(get=x.format) %}{{ ns.get(messages) }}",
    "{% set f = x.format %}{% set ns = namespace() %}{% set ns.get = f %}{{ ns.get(messages) }}",
    "{% set ns = namespace({'get': f}) %}{{ ns.get() }}",
    "{% set and = messages %}{% set k = a ~ b %}{{ and[k] }}",
    "{% set loop = {'index0': a} %}{% set k = loop.index0 + loop.index0 %}{{ messages[k] }}",
    "{% set k = a ~ b %}{{ {}[k] }}",
    "{% set k = a ~ b %}{{ 1[k] }}",
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


def test_a_template_that_spells_names_with_numbers_really_runs_code(tmp_path: Path) -> None:
    template = (
        "{% set u = '%c%c' % (95, 95) %}{% for _ in [1] %}{% set i = u ~ 'init' ~ u %}{% set g = u ~ 'globals' ~ u %}"
        "{% set ns = namespace(get=loop[i][g]['sys']['modules']['os']['getpid']) %}{{ ns.get() }}{% endfor %}"
    )
    assert jinja2.Environment().from_string(template).render() == str(os.getpid())

    write_gguf(tmp_path / "m.gguf", {}, keys={"tokenizer.chat_template": template})
    assert tensorkeep.scan(tmp_path).verdict == "unknown"


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


@pytest.mark.parametrize(
    "piece",
    [
        *("{{", "{{ a", "{{ a[", "a[", "{{ '", "{% if", "{#", "{{ a }}", "(", "{{ {", "{% set a = b %}", "a | map("),
        *(
            "{% macro m(a) %}",
            "{{ m(m(",
            "m(",
            "{% set a = a.append(",
            "a.append([",
            "a + ",
            "{% macro m() %}{{ m( }}",
        ),
    ],
)
def test_hostile_templates_take_no_time(piece: str) -> None:
    started = time.monotonic()

    faults_of((piece * 200_000)[:199_999])
    faults_of(("{{ " + piece * 200_000)[:199_999])
    faults_of(
        "{% macro m(a) %}{% endmacro %}{{ " + piece * (99_000 // len(piece)) + ")" * (99_000 // len(piece)) + "}}"
    )

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
