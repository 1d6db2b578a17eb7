"""Wikitext → plain text by mwparserfromhell: a paragraph a line, blank lines between.

Like WikiExtractor, this drops templates, tables, files, notes, formulas, galleries, headings and list items.
Unlike WikiExtractor, it expands templates that only write words (`_WRITTEN`): `{{lang|fr|mot}}`,
`{{convert|5|km|mi}}` (as `5 km`), `{{formatnum:3}}`, quotations, dashes; without them sentences read "a total area of
, of which". Other templates are dropped and counted by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from spanlm.data.wikipedia.text import drop_elements

_SILENT_TAGS = re.compile(
    "ref|references|gallery|math|chem|ce|timeline|score|source|syntaxhighlight|pre|imagemap|hiero|inputbox|graph|"
    "mapframe|maplink|templatestyles|style|script|section|includeonly|table|ul|ol|dl|li|noinclude"
)
_BLOCK_TAGS = frozenset({"blockquote", "poem", "center", "div", "p", "quote"})
_PREFIXES = frozenset({"file", "image", "media", "category"})
_ITEM = "\x01"

# elements that are slow to parse and dropped anyway
_SPARED = re.compile(r"<!--|<(ref|math|gallery|timeline|score|source|syntaxhighlight|imagemap|hiero)\b[^<>]*>", re.I)
# elements within which the parser looks for no markup
_OPAQUE = re.compile(
    r"<(nowiki|pre|ce|chem|inputbox|section|templatedata)(?: (?:[^][<>{}\"']|\"[^<>\"]*\"|'[^<>']*')*)?>", re.I
)
_MARK = re.compile(
    r"\{\{+|\}\}+|(?P<open>^[ \t:]*+\{\||\[\[|\[(?=\w*:|//)|^=+)|\|\}(?!\})|\]\]?|<!--|=+|[\n|&*#:;]|"
    r"<(?P<end>/?)(?P<tag>[a-z][^\s<>/{[]*)[^<>{[]*(?P<whole>>?)",
    re.I | re.M,
)
_OPENER = {"|}": "{|", "]]": "[[", "]": "["}
_EMPTY = ("br", "wbr", "hr", "meta", "link", "img")
# the parser restarts after every mark without an end, twice in every cell with attributes, and recurs for every `=` of
# a heading; pages that people wrote stay far below these limits
_MOST_MARKS, _MOST_OPEN, _DEEPEST_TABLE = 500_000, 64, 4
_APOSTROPHES = re.compile(r"'{2,}")
_MAGIC = re.compile(r"__[A-Z]{3,}__")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?|simple")
_CATEGORY = r"\[\[\s*+(?:{names})\s*+:([^][|]++)(?:\||\]\])"
DISAMBIGUATION = re.compile(
    r"\{\{\s*+(?:[\w -]+[ -])?(?:disambig(?:uation)?(?: page)?|dab|hndis|geodis|numberdis|roaddis|mathdab|letterdis)"
    r"\s*(?:\||\}\})",
    re.I,
)
"""Template on pages that only list the meanings of a name."""


def category_names(wikitext: str, silent: Collection[str] = ()) -> list[str]:
    """Return the names in the page's `[[Category:…]]` links; `silent` as for `plain_text`."""
    names = "|".join(map(re.escape, {"category", *silent} - {"file", "image"}))
    return [name.strip() for name in re.findall(_CATEGORY.format(names=names), wikitext, re.I)]


def is_tangled(wikitext: str) -> bool:
    """Return whether parsing this markup could take more than linear time."""
    stack: list[str] = []
    loose = 0
    for count, match in enumerate(_MARK.finditer(drop_elements(_OPAQUE, drop_elements(_SPARED, wikitext)))):
        mark, tag = match[0].lstrip(" \t:"), (match["tag"] or "").lower()
        if mark == "<!--" or (tag and (not match["whole"] or mark.count('"') % 2 or mark.count("'") % 2)):
            loose += 1
        elif tag and not match["end"]:
            if not mark.endswith("/>") and tag not in _EMPTY:
                stack.append(tag)
        elif tag or mark in _OPENER or mark[:1] == "}":
            for opener in [_OPENER.get(mark, tag)] if mark[0] != "}" else mark.replace("}", "{"):
                while opener in stack and stack.pop() != opener:
                    loose += 1
        elif mark[:2] == "{{":
            stack += mark
        elif match["open"] or (mark[:1] == "=" and stack[-1:] == ["="]):
            stack.append(mark.rstrip("=") or "=")
        while mark == "\n" and stack and stack[-1] in "[=":
            loose += stack.pop() == "["
        if loose + len(stack) > _MOST_OPEN or stack.count("{|") > _DEEPEST_TABLE or count > _MOST_MARKS:
            return True
    return False


def plain_text(wikitext: str, silent: Collection[str] = (), dropped: Counter[str] | None = None) -> str:
    """Return the page's running text, without links to the namespaces `silent` (in small letters).

    Templates that write nothing are counted in `dropped` by name.
    """
    import mwparserfromhell

    code = mwparserfromhell.parse(drop_elements(_SPARED, wikitext), skip_style_tags=True)
    shown = _Renderer({*_PREFIXES, *silent}, Counter() if dropped is None else dropped).render(code)
    return _paragraphs(_MAGIC.sub("", _APOSTROPHES.sub(_unstyled, shown)))


def _unstyled(match: re.Match[str]) -> str:
    """Remove marks of italics and bold; `''Hamlet'''s` keeps its apostrophe."""
    marks, after = len(match[0]), match.string[match.end() : match.end() + 2]
    possessive = marks == 3 and re.match(r"s\b", after) is not None
    return "'" if marks == 4 or possessive else ""


def _paragraphs(text: str) -> str:
    """Join the lines of each paragraph; drop list items, and keep remains of tables on lines of their own."""
    paragraphs: list[list[str]] = []
    is_open = False
    for line in map(str.strip, text.split("\n")):
        is_text = bool(line) and line[0] not in _ITEM + "|!{"
        if is_text and is_open:
            paragraphs[-1].append(line)
        elif line and not line.startswith(_ITEM):
            paragraphs.append([line])
        is_open = is_text
    return "\n\n".join(map(" ".join, paragraphs))


class _Renderer:
    """Renders parsed wikitext as text. The parser has no type stubs, hence `Any`."""

    def __init__(self, silent: Collection[str], dropped: Counter[str]) -> None:
        self._silent, self._dropped = silent, dropped
        self._kinds: dict[str, Callable[[Any], str]] = {
            "Text": lambda node: str(node.value),
            "Wikilink": self._link,
            "ExternalLink": lambda node: self.render(node.title) if node.brackets else "",
            "Template": self._template,
            "Tag": self._tag,
            "HTMLEntity": lambda node: str(node.normalize()),
            "Argument": lambda node: self.render(node.default),
            "Heading": lambda node: "\n\n",
            "Comment": lambda node: "",
        }

    def render(self, code: Any) -> str:
        return "" if code is None else "".join(self._kinds[type(node).__name__](node) for node in code.nodes)

    def _link(self, node: Any) -> str:
        title = str(node.title).strip()
        prefix, colon, _ = title.partition(":")
        if colon and prefix.strip().lower().replace("_", " ") in self._silent:
            return ""
        if node.text is not None:
            return self.render(node.text)
        return "" if colon and _LANGUAGE.fullmatch(prefix) else title.lstrip(":").replace("_", " ")

    def _tag(self, node: Any) -> str:
        name = str(node.tag).strip().lower()
        if node.wiki_markup and name in ("li", "dt", "dd"):
            return _ITEM
        if _SILENT_TAGS.fullmatch(name):
            return ""
        if name in ("br", "hr"):
            return " " if name == "br" else "\n\n"
        inside = self.render(node.contents)
        return f"\n\n{inside}\n\n" if name in _BLOCK_TAGS else inside

    def _template(self, node: Any) -> str:
        name, colon, argument = self.render(node.name).strip().partition(":")
        name = " ".join(name.lower().replace("_", " ").split())[:60]
        patterns = _WRITTEN.get("lang-" if name.startswith("lang-") else name, [])
        fields = {str(field.name).strip(): self.render(field.value).strip() for field in node.params if patterns}
        if colon:  # a parser function, whose first argument follows its name
            fields["1"] = argument.strip()
        fields["*"] = "".join(value for field, value in fields.items() if field.isdecimal())
        middle, third = fields.get("2", ""), fields.get("3", "")
        if name in _QUANTITIES and (middle in _RANGE or third.replace(".", "").isdecimal()):
            fields["2"], patterns = middle.removesuffix("(-)"), ["{1} {2} {3} {4}", *patterns]
        if name in _QUANTITIES and fields.get("4") in _RANGE:
            patterns = []  # no pattern has three numbers
        for pattern in patterns:
            if all(fields.get(place) for place in _PLACE.findall(pattern)):
                shown = _PLACE.sub(lambda place: fields[place[1]], pattern)
                return f"\n\n{shown}\n\n" if name in _QUOTATIONS else shown
        self._dropped[name or colon] += 1
        return ""


_PLACE = re.compile(r"\{(\w+|\*)\}")
_QUOTATIONS = frozenset({"quote", "quotation", "blockquote", "cquote", "bquote", "poemquote"})
_QUANTITIES = frozenset({"convert", "cvt"})
_RANGE = frozenset({"to", "-", "–", "and", "by", "x", "or", "to(-)", "and(-)"})
# Templates that write words, by their names in small letters, with patterns; the first pattern counts whose arguments
# {1}, {u} … all have a value. Other templates write nothing: infoboxes, notes and boxes of links are not text, and
# results of modules (an age, a country's name from its code) are unknown here. {{nihongo}} gives the English form, or
# else the romanised one.
_TABLE = {
    "nowrap|nobr|nobreak|no break|nwr|small|smaller|big|large|larger|sc|smallcaps|em|strong|abbr|abbrv|tooltip": "{1}",
    "sic|typo|not a typo|proper name|as written|mvar|var|mono|code|kbd|samp|u|underline|sup|sub|vanchor|ruby": "{1}",
    "noitalic|no italic|nobold|formatnum|num|nts|flag|flagu|flagcountry|stn|stnlnk|rws|lang-": "{1}",
    "lang|langx|color|colour": "{2}",
    "transl|transliteration|wikt-lang": "{3}|{2}",
    "gaps|linktext": "{*}",
    "convert|cvt|sortname": "{1} {2}|{1}",
    "val": "{1}×10^{e} {u}|{1}×10^{e} {ul}|{1}×10^{e}|{1} {u}/{up}|{1} {u}|{1} {ul}|{1}",
    "frac|fraction|sfrac": "{1} {2}/{3}|{1}/{2}|1/{1}",
    "height": "{m} m|{cm} cm|{ft} ft {in} in|{ft} ft",
    "ill|illm|interlanguage link|interlanguage link multi": "{lt}|{display}|{1}",
    "nihongo|nihongo foot": "{1}|{3}",
    "ship": "{1} {2}|{2}",
    "sclass|sclass2": "{1}-class {2}",
    **{ship.lower(): ship + " {1}" for ship in ("USS", "HMS", "SS", "MV", "MS", "RMS", "HMAS", "HMCS", "USNS", "SMS")},
    **{f"{land.lower()}$": land + "${1}" for land in ("US", "A", "AU", "C", "CA", "NZ", "HK")},
    **{"usd": "US${1}", "€|eur|euro": "€{1}", "£|gbp": "£{1}", "¥|jpy": "¥{1}", "₹|inr": "₹{1}"},
    "circa|c.|c": "c. {1} – {2}|c. {1}|c. ",
    "floruit|fl.": "fl. {1} – {2}|fl. {1}",
    "as of": "{alt}|As of {1}",
    "|".join(_QUOTATIONS): "{1}|{text}|{quote}",
    "ndash|snd|spnd|spaced ndash|spaced en dash|–": " – ",
    "mdash|—": " — ",
    **{"nbsp|space|thinsp|thin space": " ", "'|’": "'", "'s": "'s", "=": "="},
}
_WRITTEN = {name: patterns.split("|") for names, patterns in _TABLE.items() for name in names.split("|")}
