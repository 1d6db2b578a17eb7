"""Reports as SRILM and KenLM print them, where `tests/cli/test_evaluate.py` has none: words, ends of the numbers."""

from spanlm.scoring.toolkits import WordProbability, kenlm_report, srilm_report

LINE = [
    WordProbability("the", 3, 2, -0.2, False),
    WordProbability("dog", 0, 1, -1.2, True),
    WordProbability("cat", 4, 1, -0.9, False),
    WordProbability("</s>", 2, 2, -0.3, False),
]


def test_srilm() -> None:
    assert list(srilm_report([LINE], "in.txt", debug=2)) == [
        "the dog cat",
        "\tp( the | <s> ) \t= [2gram] 0.630957 [ -0.2 ]",
        "\tp( <unk> | the ...) \t= [OOV] 0 [ -inf ]",
        "\tp( cat | <unk> ...) \t= [1gram] 0.125893 [ -0.9 ]",
        "\tp( </s> | cat ...) \t= [2gram] 0.501187 [ -0.3 ]",
        "1 sentences, 3 words, 1 OOVs",
        "0 zeroprobs, logprob= -1.4 ppl= 2.92864 ppl1= 5.01187",
        "",
        "file in.txt: 1 sentences, 3 words, 1 OOVs",
        "0 zeroprobs, logprob= -1.4 ppl= 2.92864 ppl1= 5.01187",
    ]


def test_srilm_divides_by_nothing_nowhere_and_skips_blank_lines() -> None:
    end = WordProbability("</s>", 2, 1, -0.5, False)
    unknown = WordProbability("a", 0, 1, -9.0, True)
    assert list(srilm_report([[end], [unknown, end]], "a")) == [
        "file a: 1 sentences, 1 words, 1 OOVs",
        "0 zeroprobs, logprob= -0.5 ppl= 3.16228 ppl1= undefined",
    ]
    assert list(srilm_report([[end]], "a"))[1] == "0 zeroprobs, logprob= 0 ppl= undefined ppl1= undefined"


def test_srilm_counts_words_of_probability_0_and_leaves_them_out() -> None:
    never = WordProbability("emu", 5, 1, float("-inf"), False)
    unknown = LINE[1]._replace(log10=float("-inf"))
    assert list(srilm_report([[LINE[0], never, unknown, *LINE[2:]]], "a")) == [
        "file a: 1 sentences, 4 words, 1 OOVs",
        "1 zeroprobs, logprob= -1.4 ppl= 2.92864 ppl1= 5.01187",
    ]


def test_what_is_too_improbable_for_a_number_is_infinite() -> None:
    line = [WordProbability("a", 1, 1, -400.0, False), WordProbability("</s>", 2, 2, -400.0, False)]
    assert "Perplexity including OOVs:\tinf" in kenlm_report([line])
    unknown = WordProbability("emu", 0, 1, float("-inf"), True)
    reports = ([*kenlm_report([words])] for words in (LINE, [*LINE, unknown]))
    without, beside = ([line for line in report if "excluding" in line] for report in reports)
    assert without == beside and "inf" not in without[0]


def test_numbers_are_as_short_as_kenlms() -> None:
    line = [WordProbability("a", 1, 1, -12.345678912, False), WordProbability("</s>", 2, 2, -0.000012345678, False)]
    assert next(kenlm_report([line])) == "a=1 1 -12.345679\t</s>=2 2 -0.000012345678\tTotal: -12.345692 OOV: 0"
