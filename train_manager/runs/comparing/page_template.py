"""The template of the page that compares runs. Everything that is filled in is escaped, but for the picture."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --band: #f6f8fa;
  --gone: #a40e26; --gone-paper: #ffebe9; --new: #116329; --new-paper: #dafbe1; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e6edf3; --soft: #9aa5b1; --line: #3a424b;
  --band: #1c2229; --gone: #ffb3ad; --gone-paper: #4a1d20; --new: #8ddb9c; --new-paper: #15371f; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top;
  max-width: 28rem; overflow-wrap: anywhere; min-width: 4rem; }
thead th { border-bottom: 2px solid var(--line); }
tbody th { font-weight: 500; } td { font-family: ui-monospace, monospace; font-size: .87rem; }
caption { text-align: left; color: var(--soft); } .soft, .none { color: var(--soft); }
pre { background: var(--band); padding: .6rem; overflow-x: auto; font-size: .87rem; margin: .4rem 0; }
del { background: var(--gone-paper); color: var(--gone); text-decoration: none; }
ins { background: var(--new-paper); color: var(--new); text-decoration: none; }
svg { max-width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif !important; fill: currentColor; }
summary { cursor: pointer; color: var(--soft); }
@media print { body { margin: 0; max-width: none; } .scroll { overflow: visible; } }
"""

TEMPLATE: Final = (
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{ runs | map(attribute="label") | join(", ") | truncate(80) }}: compared</title>
<style>"""
    + STYLE
    + """</style>
</head>
<body>
{% macro value(text) %}
{% if text is none %}<span class="none" title="not recorded">-</span>{% elif text | length > LONG %}
<details><summary>{{ text[:LONG] }}… ({{ "{:,}".format(text | length) }} characters)</summary>{{ text }}</details>
{% else %}{{ text }}{% endif %}
{% endmacro %}
{% macro head(corner) %}
<thead><tr><th scope="col">{{ corner }}</th>{% for run in runs %}\
<th scope="col">{{ run.label }}</th>{% endfor %}</tr></thead>
{% endmacro %}
{% macro section(table) %}
<section aria-labelledby="{{ table.title }}">
<h2 id="{{ table.title }}">{{ table.title | capitalize }}</h2>
{% if table.differing %}
<div class="scroll" tabindex="0" role="region" aria-labelledby="{{ table.title }}"><table>
{{ head("") }}
<tbody>
{% for name, cells in table.differing.items() %}
<tr><th scope="row">{{ name or "(the class)" }}</th>{% for cell in cells %}<td>{{ value(cell) }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% else %}
<p>{{ "Nothing differs." if table.same else "Not recorded." }}</p>
{% endif %}
{% if table.same %}
<details><summary>{{ plural(table.same | length, "value") }} of all runs the same</summary>
<table><thead><tr><th scope="col">name</th><th scope="col">value</th></tr></thead><tbody>
{% for name, text in table.same.items() %}
<tr><th scope="row">{{ name or "(the class)" }}</th><td>{{ value(text) }}</td></tr>
{% endfor %}
</tbody></table></details>
{% endif %}
</section>
{% endmacro %}
<main>
<h1>{{ runs | length }} runs, compared</h1>
<section aria-labelledby="runs"><h2 id="runs">Runs</h2>
<div class="scroll" tabindex="0" role="region" aria-labelledby="runs"><table>
<thead><tr>{% for name in ("run", "folder", "run_id", "began", "progress", "outcome") %}\
<th scope="col">{{ name }}</th>{% endfor %}</tr></thead><tbody>
{% for run in runs %}
<tr><th scope="row">{{ run.label }}</th><td>{{ run.train_dir }}</td><td>{{ run.id }}</td><td>{{ run.began }}</td>\
<td>{{ run.progress }}</td><td>{{ value(run.outcome) }}</td></tr>
{% endfor %}
</tbody></table></div></section>
{% for note in notes %}<p class="soft">Note: {{ note }}</p>{% endfor %}
<section aria-labelledby="curves"><h2 id="curves">Curves</h2>
{{ svg | safe }}
{% if curves_note %}<p class="soft">{{ curves_note }}</p>{% endif %}
</section>
{{ section(tables.metrics) }}
{{ section(tables.parameters) }}
{{ section(tables.code) }}
{% for run, code in files %}
<section><h3>{{ runs[0].label }} → {{ run.label }}: \
{{ plural(code.files | length, "file") }} {{ "differs" if code.files | length == 1 else "differ" }}</h3>
{% for file in code.files %}
{% if file.changes %}
<details{{ " open" if loop.index <= 10 }}><summary>{{ file.path }}</summary>
{% for change in file.changes[:50] %}
<p class="soft">line {{ change.line }}</p>
<pre>{% for text in change.removed %}<del>- {{ text }}</del>
{% endfor %}{% for text in change.added %}<ins>+ {{ text }}</ins>
{% endfor %}</pre>
{% endfor %}
{% if file.changes | length > 50 %}
<p class="soft">and {{ plural(file.changes | length - 50, "more place") }}</p>
{% endif %}
</details>
{% else %}<p>{{ file.path }}: {{ file.what }}</p>{% endif %}
{% endfor %}
{% for problem in code.problems %}<p class="soft">Note: {{ problem }}</p>{% endfor %}
</section>
{% endfor %}
{{ section(tables.environment) }}
{{ section(tables.data) }}
</main>
<footer><p class="soft">Made by Train Manager {{ version }}.</p></footer>
</body>
</html>
"""
)
