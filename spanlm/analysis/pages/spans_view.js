"use strict";
// A model with a span buffer. weights[t] are in ten-thousandths, the newest span first; it ends at token newest[t], the
// next `span` tokens before it. A span that began before its context, which is first at token first[t], has only those
// of its tokens that are in it.

const NAMED_SPANS = 6; // spans told in words

class SpansView extends LooksView {
  constructor(reader) {
    super(reader);
    this.attends = true;
    const { gate } = reader.content;
    this.tints["the gate (λ)"] = { most: "λ 1", share: (t) => gate[t] ?? 0 };
    this.preferred = make("p", "note");
    this.share = make("span", "share");
    this.gate = make("div", "gate", this.share);
    this.parts = Object.fromEntries(["mixture", "buffer", "encoder"].map((part) => [part, make("ol", "guesses")]));
    this.spans = make("h2", "");
  }

  layPanel() {
    const { nearest, darkest, weights } = this.reader.content;
    const names = { mixture: "both", buffer: "buffer alone", encoder: "encoder alone" };
    const columns = Object.entries(this.parts).map(([part, list]) => make("div", "", make("h3", "", names[part]), list));
    this.reader.panel.replaceChildren(
      this.came,
      make("div", "gated", make("h2", "", "The ", term("gate")), this.gate, this.preferred),
      make("div", "expected", make("h2", "", "Expected by"), make("div", "three", ...columns)),
      make("div", "looked spans", this.spans, this.lags, this.peaks));
    layKey(this.reader, nearest ? "just read, in no span yet" : "just read", darkest,
      weights.some((row) => row.some((weight) => weight > UNITS * darkest)));
  }

  looks(t) {
    const { span, first, newest, weights } = this.reader.content;
    return weights[t].map((weight, k) => {
      const to = newest[t] - k * span;
      return { from: Math.max(first[t], to - span + 1), to, weight: weight / UNITS };
    });
  }

  largest(t) { return this.looks(t).sort((a, b) => b.weight - a.weight).slice(0, NAMED_SPANS); }

  wordsOf({ from, to }) {
    return this.reader.shown.slice(from, to + 1).join(" ");
  }

  inWords(look) { return `${this.wordsOf(look)}, ${percent(look.weight)}`; }

  tell(t) {
    const { reader } = this, { tokens, expected, gate } = reader.content;
    this.came.replaceChildren(...cameHead(reader, t, expected.mixture[t]));
    this.axes.guess = Math.max(...Object.keys(this.parts).flatMap((part) => expected[part][t]).map(([, chance]) => chance));
    for (const [part, list] of Object.entries(this.parts)) {
      list.replaceChildren(...guessList(expected[part][t], reader.asRead(tokens[t + 1]), (word) => reader.spell(word)));
    }
    this.gate.hidden = gate[t] === null;
    this.share.style.width = `${100 * gate[t]}%`;
    this.preferred.textContent = gate[t] === null
      ? "there is nothing in the buffer yet"
      : `λ ${gate[t].toFixed(3)}: the ${gate[t] >= 0.5 ? "buffer" : "encoder"} is preferred`;
    this.tellSpans(t);
  }

  tellSpans(t) {
    const { reader } = this, { span, darkest } = reader.content;
    const looks = this.looks(t), peaks = this.largest(t);
    this.axes.look = Math.max(darkest, ...looks.map(({ weight }) => weight));
    this.spans.textContent = looks.length
      ? `It looked at ${looks.length} ${span > 1 ? `spans of ${span} words` : "words"}`
      : "It looked at nothing: no span has passed yet";
    this.lags.hidden = !looks.length;
    this.lags.replaceChildren(...looks.reverse().map(({ weight }) => {
      const now = make("div", "now");
      now.style.height = along("look", weight);
      return make("div", "slot", now);
    }));
    this.lags.setAttribute("aria-label", "Attention by span, the newest to the right. " + peaks.map((look) => this.inWords(look)).join(", "));
    this.peaks.replaceChildren(...peaks.map((look) => {
      const centred = { block: "center", behavior: "smooth" };
      const jump = button(this.wordsOf(look), () => reader.words[look.from].scrollIntoView(centred), "word");
      jump.title = `${this.wordsOf(look)}: show it in the text`;
      return make("li", "", jump, make("span", "", percent(look.weight)));
    }));
  }

  speak(t) {
    const { shown, content: { bits, gate } } = this.reader, [best] = this.largest(t);
    return `After ${shown[t]} came ${shown[t + 1]}, ${inBits(bits[t])}.` +
      (best ? ` λ ${gate[t].toFixed(2)}. It looked most at ${this.inWords(best)}.` : "");
  }

  opening() { return opening(this.reader, this.reader.content.bits, 4 * this.reader.content.span); } // once there is a choice
}
