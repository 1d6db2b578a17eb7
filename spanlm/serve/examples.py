"""Five texts for each kind of corpus: agreement, a name that comes again, a list, a quotation, a garden path.

Each says what to look for. They are written as the corpus is, in words that nearly all are in its vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spanlm.data.config import DEMO


class Example(NamedTuple):
    """A text, and what to look for in it."""

    title: str
    text: str
    look: str


def examples_for(corpus: str | None) -> Sequence[Example]:
    """Return the examples of a registered corpus, or those in plain English."""
    return _EXAMPLES.get(corpus or "", _GENERAL)


_AGREEMENT = (
    "“{verb}” agrees with “{subject}”, past a noun of the other number. Is it less surprising than “{wrong}” in its "
    "place (try it)? Does the model look back at the subject?"
)
_NAME = (
    "A word that came once costs less when it comes again. Compare the bits of “{word}” in all its places, with each "
    "line alone and with the text so far carried along."
)
_LIST = (
    "With every item the comma, and then another item, should become easier to guess. Where does the surprise fall, "
    "and where does the model look after “and”?"
)
_QUOTE = "What opens must close. How probable is {mark} where it comes, and does the model look at the one that opened?"
_GARDEN = (
    "In the first line “{word}” reads as the verb of the sentence until “{verb}” comes. Is that where the bits jump, "
    "and less so in the second line, which does not mislead?"
)

_DEMO = (
    Example(
        "A subject far from its verb",
        "the names that the module defines are bound .\nthe name that the modules define is bound .",
        _AGREEMENT.format(verb="are", wrong="is", subject="names"),
    ),
    Example(
        "A name that comes again",
        "the decorator is a function .\nwhen the decorator is called , the decorator returns a function .",
        _NAME.format(word="decorator"),
    ),
    Example("A list", "the values are strings , numbers , lists , tuples , dictionaries and sets .", _LIST),
    Example(
        "Brackets",
        "the method ( see section special method names ) returns the object ( or none ) .",
        _QUOTE.format(mark="“)”"),
    ),
    Example(
        "A garden path",
        "the function called with no arguments returns none .\n"
        "the function that is called with no arguments returns none .",
        _GARDEN.format(word="called", verb="returns"),
    ),
)
_PTB = (
    Example(
        "A subject far from its verb",
        "the companies that the government sold are profitable\nthe company that the banks sold is profitable",
        _AGREEMENT.format(verb="are", wrong="is", subject="companies"),
    ),
    Example(
        "A name that comes again",
        "mr. roman said the contract is a mistake\nmr. roman said he will leave and mr. roman is right",
        _NAME.format(word="roman"),
    ),
    Example("A list", "the bank has offices in new york london tokyo paris and hong kong", _LIST),
    Example(
        "A number that comes again",
        "the shares rose N cents to $ N from $ N and the bonds rose N cents to $ N from $ N",
        "The second half repeats the first. Which words become easier, and does the model look at those of the first?",
    ),
    Example(
        "A garden path",
        "the bank sold last year reported a loss\nthe bank that was sold last year reported a loss",
        _GARDEN.format(word="sold", verb="reported"),
    ),
)
_WIKITEXT = (
    Example(
        "A subject far from its verb",
        "The songs that the band recorded were released in 2004 .\n"
        "The song that the bands recorded was released in 2004 .",
        _AGREEMENT.format(verb="were", wrong="was", subject="songs"),
    ),
    Example(
        "A name that comes again",
        "Carey wrote the song in New York .\nAfter the album was released , Carey said that the song was about Carey .",
        _NAME.format(word="Carey"),
    ),
    Example("A list", "It was released in Canada , France , Germany , Italy , Japan and Australia .", _LIST),
    Example(
        "A quotation",
        'The critic called the film " one of the best films of the year " , and the music " a great success " .',
        _QUOTE.format(mark="the mark"),
    ),
    Example(
        "A garden path",
        "The ship sold to Japan sank in 1904 .\nThe ship that was sold to Japan sank in 1904 .",
        _GARDEN.format(word="sold", verb="sank"),
    ),
)
_CBT = (
    Example(
        "A subject far from its verb",
        "The boys that the king saw were very happy .\nThe boy that the kings saw was very happy .",
        _AGREEMENT.format(verb="were", wrong="was", subject="boys"),
    ),
    Example(
        "A name that comes again",
        "Peter went into the garden .\nWhen the old man saw Peter , he took Peter by the hand .",
        _NAME.format(word="Peter"),
    ),
    Example("A list", "She had bread , butter , milk , eggs , apples and a cup of tea .", _LIST),
    Example(
        "A quotation",
        "`` Where are you going ? '' said the king .\n`` I am going home , '' said the boy .",
        _QUOTE.format(mark="the closing mark"),
    ),
    Example(
        "A garden path",
        "The boy told the story began to cry .\nThe boy who was told the story began to cry .",
        _GARDEN.format(word="told", verb="began"),
    ),
)
_GENERAL = (
    Example(
        "A subject far from its verb",
        "the books that the woman wrote are good .\nthe book that the women wrote is good .",
        _AGREEMENT.format(verb="are", wrong="is", subject="books"),
    ),
    Example(
        "A name that comes again",
        "john went to the house .\nwhen the people saw john , they asked john to come in .",
        _NAME.format(word="john"),
    ),
    Example("A list", "there were men , women , children , horses and dogs .", _LIST),
    Example(
        "A quotation", '" where are you going ? " said the man . " home , " she said .', _QUOTE.format(mark="the mark")
    ),
    Example(
        "A garden path",
        "the man told the story began to speak .\nthe man who was told the story began to speak .",
        _GARDEN.format(word="told", verb="began"),
    ),
)
_EXAMPLES: dict[str, Sequence[Example]] = {DEMO: _DEMO, "ptb": _PTB, "wikitext-2": _WIKITEXT, "cbt": _CBT}
