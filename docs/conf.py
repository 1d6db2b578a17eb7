"""The site: `sphinx-build -W -b html docs OUT`. Nothing is fetched, when it is built or when it is read."""

import sys
from pathlib import Path

from pygments.lexer import RegexLexer
from pygments.token import Comment, Text
from sphinx.application import Sphinx

from spanlm import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "spanlm"
author = copyright = "The spanlm authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "from_code", "notebooks", "llms"]
exclude_patterns = ["_ext"]
default_role = "code"  # docstrings have single backticks
highlight_language = "none"

html_theme = "furo"
html_title = f"spanlm {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80


def _keep_whole(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from reading `Words of an attribute: more words` as a type and its description."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]


class Commands(RegexLexer):
    """Commands of a shell: only comments have a colour, not what happens to be a word of bash, such as test."""

    tokens = {"root": [(r"(?<!\S)#.*", Comment), (r"[^\s#]+|\s+|#", Text)]}  # noqa: RUF012 - the library's way


def setup(app: Sphinx) -> None:
    """Go before napoleon, and colour commands."""
    app.add_lexer("sh", Commands)
    app.connect("autodoc-process-docstring", _keep_whole, priority=400)
