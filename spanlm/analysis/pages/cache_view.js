"use strict";
// What a neural cache beside a model gave each word. places[t] are the steps i at which it had read the same word, which
// is token i + 1, with their shares of the cache's probability, the largest first.

class CacheView {
  constructor(reader) {
    this.reader = reader;
    this.gave = make("p", "note");
    this.peaks = make("ol", "peaks");
    reader.panel.append(make("div", "cached", make("h2", "", "The ", term("cache")), this.gave, this.peaks));
  }

  seen(t) {
    return this.reader.content.cache.places[t].map(([i, weight]) => (
      { from: i + 1, to: i + 1, weight, label: shareLabel(weight) }));
  }

  inWords(t) {
    const { bits, cache: { chance, gain } } = this.reader.content;
    if (chance[t] === null) return bits[t] === null ? "nothing was predicted" : "it was still empty";
    return `${chance[t] ? `had this word, ${percent(chance[t])}` : "did not have this word"}: ${Math.abs(gain[t]).toFixed(2)} bits ${gain[t] < 0 ? "lost" : "gained"}`;
  }

  tell(t) {
    const { shown, content: { cache } } = this.reader;
    this.gave.textContent = this.inWords(t);
    this.peaks.replaceChildren(...cache.places[t].slice(0, NAMED).map(([i, share]) => make("li", "",
      make("span", "word", `${shown[i]} ${shown[i + 1]}`), make("span", "", signed(t - i - 1)), make("span", "", percent(share)))));
  }

  speak(t) { return ` The cache: ${this.inWords(t)}.`; }

  opening() { return opening(this.reader, this.reader.content.cache.gain); }
}
