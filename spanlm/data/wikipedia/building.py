"""A corpus from its sources: two passes, in memory that grows with the number of different words.

First every article is cut into words, by all processes, and kept on the disk in pieces; then articles are dealt out
to the splits, the words of the training part are counted, and the pieces become the corpus. Until it is whole, all is
in a hidden folder beside it. A piece is kept under the SHA-256 of all that it was made from: a build that was stopped
or killed goes on from its pieces, and one with another source or other options uses only what fits.
"""

from __future__ import annotations

from spanlm.data.wikipedia.config import WikipediaConfig
from spanlm.data.wikipedia.gathering import Report, gather
from spanlm.data.wikipedia.sources import find_sources
from spanlm.data.wikipedia.splitting import split_articles
from spanlm.data.wikipedia.summary import Summary, to_json
from spanlm.data.wikipedia.workplace import workplace
from spanlm.data.wikipedia.writing import (
    choose_vocabulary,
    count_training_words,
    summarise_vocabulary,
    write_splits,
    write_summary,
)
from spanlm.errors import InputError


def build_corpus(config: WikipediaConfig, report: Report = lambda progress: None) -> Summary:
    """Build the corpus.

    The processes are started afresh (`spawn`): a script that calls this with `jobs` above 1 does so under
    `if __name__ == "__main__":`.

    Args:
        config: What is asked for.
        report: Is told of the progress; what it raises ends the build.

    Returns:
        What was built, as it stands in `corpus.json`.

    Raises:
        InputError: A source is not what it should be or is damaged, nothing is left of it, `config.out` holds
            something, or the vocabulary asked for is larger than there are words.
        RunError: A process was ended from outside, or another one builds the same corpus.
        OSError: The disk refused; what is done is kept.
    """
    sources = find_sources(config.sources)
    with workplace(config.out) as place:
        gathered = gather(config, sources, place, report)
        try:
            splits = split_articles(gathered.lots, gathered.words).tolist()
        except InputError:
            place.discard()
            raise
        counts = count_training_words(gathered, splits, place, report)
        known = choose_vocabulary(config, counts)
        vocabulary = summarise_vocabulary(counts, known)
        written = write_splits(gathered, splits, known, place, report)
        summary = Summary(
            splits=written,
            vocabulary=vocabulary,
            skipped=dict(sorted(gathered.skipped.items())),
            unread=gathered.unread,
            left_out=dict(sorted(gathered.left_out.items())),
            sources=gathered.sources,
            reused=gathered.reused,
        )
        write_summary(place.corpus, to_json(summary, config, any(source.kind == "xml" for source in sources)))
        place.finish()
    return summary
