"""A page as one HTML file, without network: its style, its script and its data are inside.

The words of a text are data, never markup: they travel as JSON whose `<`, `>` and `&` are escaped, and the
script puts them into text nodes. The Content-Security-Policy lets nothing run or load but the one script and
the one style sheet whose SHA-256 it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources


def self_contained(
    template: str,
    record: object,
    *,
    fragments: Mapping[str, str],
    styles: Sequence[str],
    scripts: Sequence[str],
    title: str,
    texts: Mapping[str, str],
) -> str:
    """Fill a template of this package: its `{{title}}`, `{{policy}}`, `{{style}}`, `{{record}}` and `{{script}}`.

    Args:
        template: the file's name.
        record: what the script reads, as plain values.
        fragments: files for other places of the template, by the place; what they hold is not filled.
        styles: files of the style sheet, in order.
        scripts: files of the script, in order.
        title: any text.
        texts: what else the template has places for; markup of our own.
    """
    style, script = ("".join(map(_resource, names)) for names in (styles, scripts))
    parts = {
        **texts,
        **{place: _resource(name) for place, name in fragments.items()},
        "policy": _policy(style, script),
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "style": style,
        "record": _json(record),
        "script": script,
    }
    # one pass: what is put in is not searched again, so a word may be {{script}}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _resource(template))


def _resource(name: str) -> str:
    return resources.files("spanlm.analysis").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _json(value: object) -> str:
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
