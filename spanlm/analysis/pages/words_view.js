"use strict";
// A model that looks at words, or at nothing. Column j of weights[t] is lag window - 1 - j + nearest.

const NAMED = 3; // sources named in words

// what a view of words and one of spans share
class LooksView {
  constructor(reader) {
    const { bits } = reader.content;
    this.reader = reader;
    this.came = make("div", "came");
    this.peaks = make("ol", "peaks");
    this.lags = make("div", "lags");
    this.lags.setAttribute("role", "img");
    this.tints = { surprisal: { most: `${reader.most} bits`, share: (t) => (bits[t] ?? 0) / reader.most } };
    this.axes = { guess: 0, look: 0 };
  }

  seen(t) { return this.looks(t).map((look) => ({ ...look, label: shareLabel(look.weight) })); }
}

class WordsView extends LooksView {
  constructor(reader) {
    super(reader);
    const { weights, mean } = reader.content;
    this.expected = make("ol", "guesses");
    this.attends = weights !== null;
    this.meanKey = make("p", "note", make("span", "tick"), "mean of this text");
    this.meanKey.hidden = !mean;
  }

  layPanel() {
    const { nearest, darkest, weights } = this.reader.content;
    const looked = this.attends
      ? make("div", "looked", make("h2", "", term("attention", "It looked at")), this.lags, this.peaks, this.meanKey)
      : make("div", "looked", make("p", "note", "It has no memory to look into: all it knows of the text is in the ", term("state"), " of its encoder."));
    this.reader.panel.replaceChildren(this.came, make("div", "expected", make("h2", "", "It expected"), this.expected), looked);
    layKey(this.reader, nearest ? "just read, known without looking back" : "just read (0 in the panel)", darkest,
      this.attends && weights.some((row) => row.some((weight) => weight > UNITS * darkest)));
  }

  lagOf(j) { return this.reader.content.window - 1 - j + this.reader.content.nearest; }

  looks(t) {
    if (!this.attends) return [];
    const { weights, held, nearest } = this.reader.content;
    return weights[t]
      .map((weight, j) => ({ weight: weight / UNITS, lag: this.lagOf(j), from: t - this.lagOf(j), to: t - this.lagOf(j) }))
      .filter(({ lag }) => lag - nearest < held[t]);
  }

  tell(t) {
    const { reader } = this, { tokens, expected } = reader.content;
    this.came.replaceChildren(...cameHead(reader, t, expected[t]));
    // of a written word the guesses are first tokens, which are no words
    const next = reader.content.by_word ? null : reader.asRead(tokens[t + 1]);
    const none = reader.content.bits[t] === null ? "nothing: no word was predicted" : "not shown: it predicts sub-words";
    this.expected.replaceChildren(...guessList(expected[t], next, (word) => reader.spell(word), none));
    this.axes.guess = expected[t][0]?.[1] ?? 0;
    if (this.attends) this.tellLags(t);
  }

  tellLags(t) {
    const { reader } = this, { window: size, nearest, darkest, mean, weights } = reader.content;
    const looks = this.looks(t), peaks = looks.filter(({ weight }) => weight > 0);
    peaks.sort((a, b) => b.weight - a.weight).splice(NAMED);
    this.axes.look = Math.max(darkest, 0.001, ...looks.map(({ weight }) => weight), ...(mean || []).map((value) => value / 100));
    const every = [1, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => size / step <= 6) ?? size;
    this.lags.hidden = !peaks.length; // an axis without bars says nothing
    this.lags.replaceChildren(...(peaks.length ? weights[t] : []).map((weight, j) => {
      const lag = this.lagOf(j), now = make("div", "now");
      now.style.height = along("look", weight / UNITS);
      const slot = make("div", t >= lag ? "slot" : "slot absent", now);
      if (mean) slot.appendChild(make("div", "usual")).style.bottom = along("look", mean[j] / 100);
      if (lag === nearest || lag % every === 0) slot.append(make("span", "lag", signed(lag)));
      return slot;
    }));
    this.lags.setAttribute("aria-label", "Attention by lag. " + peaks.map((look) => this.inWords(look)).join(", "));
    this.peaks.replaceChildren(...peaks.map(({ from, lag, weight }) => make("li", "",
      make("span", "word", reader.shown[from]), make("span", "", signed(lag)), make("span", "", percent(weight)))));
    if (!peaks.length) this.peaks.append(make("li", "none", reader.content.lesion === "none" ? "nothing: its memory is off"
      : reader.content.held[t] ? "no word: it left the guess to the vocabulary" : "nothing: its memory is still empty"));
    if (peaks.length && reader.content.copies) this.peaks.append(this.copied(t, this.looks(t)));
  }

  // what a pointer gave the word that came, and what it left to the vocabulary
  copied(t, looks) {
    const { reader } = this, { tokens } = reader.content, next = reader.asRead(tokens[t + 1]);
    const sum = (list) => list.reduce((all, { weight }) => all + weight, 0);
    const copies = looks.filter(({ from }) => reader.asRead(tokens[from]) === next);
    const left = make("b", "", percent(Math.max(0, 1 - sum(looks))));
    return make("li", "none", copies.length ? `Copied from ${copies.length} place${copies.length > 1 ? "s" : ""} before: ${percent(sum(copies))}. ` : "It stood nowhere before, so nothing was copied. ",
      "Left to the vocabulary: ", left, ".");
  }

  inWords({ from, lag, weight }) {
    return `${this.reader.shown[from]}, ${lag ? `${lag} back` : "just read"}, ${percent(weight)}`;
  }

  speak(t) {
    const { shown, content: { bits } } = this.reader;
    const best = this.looks(t).reduce((a, b) => (b.weight > a.weight ? b : a), { weight: 0 });
    return `After ${shown[t]} came ${shown[t + 1]}, ${inBits(bits[t])}.` +
      (best.weight ? ` It looked most at ${this.inWords(best)}.` : "");
  }

  opening() { return opening(this.reader, this.reader.content.bits); }
}

// the signs of the text, beside its bar of tints
function layKey(reader, justRead, darkest, above) {
  const { cache } = reader.content;
  if (cache) [darkest, above] = [cache.darkest, cache.darkest < 1];
  const target = make("li", "", make("span", "swatch target"), "word being guessed");
  const read = make("li", "", make("span", "swatch read"), justRead);
  const scale = make("li", "scale", "0 %", make("span", "ramp"), `${above ? "≥ " : ""}${percent(darkest)}`, cache ? " of the cache" : " looked at");
  const had = make("li", "", make("span", "swatch had"), "the cache had it");
  reader.key.replaceChildren(target, read, ...(cache ? [had] : []), ...(cache || reader.view.attends ? [scale] : []));
}

function viewOf(reader) {
  return reader.content.spans ? new SpansView(reader) : new WordsView(reader);
}
