from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.wikipedia.markup import category_names, plain_text


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Ur''' is ''a'' [[city]] of [[Iraq|the land]]s.", "Ur is a city of the lands."),
        ("''Hamlet'''s end, '''''both''''' and ''''four''''.", "Hamlet's end, both and 'four'."),
        ("A{{cn}}<ref>n</ref><ref name=a /> b<!-- no -->.<references/>", "A b."),
        ("A <ref>one</ref>b<ref name=q>{{cite|url=<ref>}}</ref> c.", "A b c."),
        ("{{Infobox\n| a = {{b|c}}\n| d = [[e]]\n}}\nText.", "Text."),
        ("[[File:A.jpg|thumb|Of [[b]] and {{c}}.]]Text[[Category:D]].", "Text."),
        ("[[Datei:A.jpg|thumb|Of [[b]].]]Text.[[Kategorie:D]]", "Text."),
        ("Text. [[:Category:People]] [[fr:Ville]] [[de:Stadt]]", "Text. Category:People"),
        ("See [http://x.org the site] and [http://y.org] http://z.org.", "See the site and  ."),
        ("== Head ==\nOne.\ntwo.\n\nThree.\n=== Deep ===\nFour.", "One. two.\n\nThree.\n\nFour."),
        ("A:\n* one\n** two\n# three\n; four\n: five\nB.", "A:\n\nB."),
        ("A.\n{| class=wikitable\n! h\n|-\n| c || {{d}}\n|}\nB.", "A.\n\nB."),
        ("A.<gallery>\nFile:B.jpg|c\n</gallery><math>x < y</math>B.", "A.B."),
        ("{{lang|fr|mot}} ({{lang-de|Wort}}), {{convert|5|km|mi}}, {{cvt|2|to|3|m|ft}}", "mot (Wort), 5 km, 2 to 3 m"),
        (
            "{{circa|1900}}{{ndash}}{{As of|2010}} {{USS|Maine}} {{quote|Be.|Me}}",
            "c. 1900 – As of 2010 USS Maine\n\nBe.",
        ),
        *(
            (f"Of {{{{{template}}}}} so.", f"Of {text} so.")
            for template, text in {
                "formatnum:3": "3",
                "formatnum:{{val|1200}}|R": "1200",
                "val|12.5|u=km2": "12.5 km2",
                "val|9|0.2|u=m|up=s": "9 m/s",
                "frac|1|2": "1/2",
                "ill|Anna Berg|sv": "Anna Berg",
                "ship|MV|Ost": "MV Ost",
                "nihongo|Battle|戦|sen": "Battle",
                "US$|5 million|link=no": "US$5 million",
                "Nowrap | 1 = a=b ": "a=b",
                "<!-- x -->not_a_typo|a": "a",
                "as of|1990|alt=by 1990": "by 1990",
                "convert|5|ft|11|in|m": "5 ft 11 in",
            }.items()
        ),
        ("a&nbsp;b &amp; c&mdash;d &#233;", "a\xa0b & c—d é"),
        ("<nowiki>[[x]]</nowiki> <span style='a'>y</span><br>z __NOTOC__", "[[x]] y z"),
        ("H<sub>2</sub>O and <blockquote>So it is.</blockquote>there", "H2O and\n\nSo it is.\n\nthere"),
        ("{{{arg|default}}} {{{none}}}", "default"),
        ("", ""),
    ],
)
def test_what_is_left_of_markup(wikitext: str, text: str) -> None:
    assert plain_text(wikitext, ("datei", "kategorie")) == text


def test_templates_that_write_nothing_are_counted_by_name() -> None:
    text = "A{{age|1990|1|1}} {{Infobox_x|a={{nowrap|no}}}} {{nowrap|b{{cite web|url=c}}}} {{val|}} {{#if:d|e}} {{Age}}"
    dropped: Counter[str] = Counter()
    assert plain_text(text, (), dropped).split() == ["A", "b"]
    assert dropped == {"age": 2, "infobox x": 1, "cite web": 1, "val": 1, "#if": 1}


@given(st.text('abcé 漢 .,()"?%+1', max_size=60))
def test_text_without_markup_is_unchanged(text: str) -> None:
    assert plain_text(text) == text.strip()


@given(st.text("[]{}|<>='\n*! ab/ref", max_size=40))
def test_no_markup_breaks_it(wikitext: str) -> None:
    assert isinstance(plain_text(wikitext), str)


def test_categories_are_the_pages_own_links() -> None:
    text = "[[Category:1900 births|Lee]] [[ category : Novels ]] [[:Category:Shown]] [[Kategorie:Stadt]] [[File:X]]"
    assert category_names(text) == ["1900 births", "Novels"]
    assert category_names(text, ("kategorie", "datei")) == ["1900 births", "Novels", "Stadt"]
