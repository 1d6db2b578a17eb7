"use strict";
// A text whose words can be pointed at, as a component that any page can hold, and fill again with other content.
// Position t: token t was just read, token t + 1 is being guessed.

const UNK = "<unk>";
const MOST_BITS = 16; // the darkest tint by surprisal
const FEW_WORDS = 24; // a text so short is set larger, and its chart names every word
const SOME_WORDS = 40; // so many names still fit beside each other on a wide screen

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function draw(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// one probability has one spelling, wherever it stands; 100 is only what is 100 to the last digit shown
function percent(share) {
  const value = 100 * share;
  if (value >= 99.95 || value === 0) return `${value ? 100 : 0} %`;
  if (value < 0.001) return "< 0.001 %";
  if (value >= 98.95) return `${value.toFixed(1)} %`;
  return `${value >= 9.95 ? value.toFixed(0) : value.toPrecision(value < 0.1 ? 1 : 2)} %`;
}

const wholePercent = (share) => (share >= 0.9995 ? 100 : Math.min(Math.round(100 * share), 99));
const inBits = (bits) => (bits === null ? "not predicted" : `${bits.toFixed(1)} bits`);
const signed = (lag) => (lag ? `−${lag}` : "0");
const hugsLeft = (word) => /^([.,;:!?%)\]}…»”’]+|n't|'(s|re|ve|ll|d|m|t)?)$/i.test(word);
const hugsRight = (word) => /^[(\[{«“‘]+$/.test(word);

// what was expected, best first, beside what came; `most` is the chance of the longest bar
function guessList(expected, came, most, spell) {
  const items = expected.map(([word, chance]) => {
    const fill = make("span", "fill");
    fill.style.width = `${100 * chance / most}%`;
    const item = make("li", word === came ? "hit" : "");
    item.append(make("span", "word", spell(word)), make("span", "track", fill), make("span", "chance", percent(chance)));
    return item;
  });
  return items.length ? items : [make("li", "none", "nothing: it is empty")];
}

// bars of surprisal, a column a word; `before` are those of another setting, drawn as ticks
class SurprisalStrip {
  constructor(onPoint, onPick) {
    this.svg = draw("svg", { class: "bars", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.top = make("span", "top");
    this.labels = make("div", "labels");
    this.labels.setAttribute("aria-hidden", "true");
    this.caption = make("figcaption", "note");
    this.plot = make("div", "plot", this.svg, this.top);
    this.element = make("figure", "strip", this.plot, this.labels, this.caption);
    const at = (event) => {
      const box = this.svg.getBoundingClientRect();
      const t = Math.floor((event.clientX - box.left) / box.width * this.count);
      return Math.max(0, Math.min(t, this.count - 1));
    };
    this.plot.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") onPoint(at(event)); });
    this.plot.addEventListener("click", (event) => onPick(at(event)));
  }

  show(bits, words, before = null) {
    this.bits = bits;
    this.count = bits.length;
    const known = [...bits, ...(before ?? [])].filter((value) => value !== null);
    this.most = Math.max(8, 4 * Math.ceil(Math.max(0, ...known) / 4));
    const y = (value) => (100 - 100 * value / this.most).toFixed(1);
    const path = (values, shape) => values.map((value, t) => (value === null ? "" : shape(t, y(value)))).join("");
    this.svg.setAttribute("viewBox", `0 0 ${this.count} 100`);
    this.now = draw("path", { class: "now", d: "" });
    this.svg.replaceChildren(
      draw("path", { class: "every", d: path(bits, (t, top) => `M${t + 0.5} 100V${top}`) }), this.now);
    if (before) this.svg.append(draw("path", { class: "before", d: path(before, (t, top) => `M${t + 0.06} ${top}h.88`) }));
    this.top.textContent = `${this.most} bits`;
    this.labels.hidden = this.count > SOME_WORDS;
    this.labels.className = this.count > FEW_WORDS ? "labels some" : "labels";
    this.labels.replaceChildren(...(this.labels.hidden ? [] : words.map((word) => make("span", "", make("span", "", word)))));
    const scored = bits.filter((value) => value !== null);
    const mean = scored.reduce((sum, value) => sum + value, 0) / Math.max(scored.length, 1);
    this.caption.textContent = `Surprisal word by word; mean ${mean.toFixed(1)} bits${before ? ". Ticks: as trained" : ""}`;
  }

  mark(t) {
    const bits = this.bits[t];
    this.now.setAttribute("d", bits === null ? "" : `M${t + 0.5} 100V${(100 - 100 * bits / this.most).toFixed(1)}`);
  }
}

class Reader {
  // onSelect(t, pinned) is called when a person chose a position, onPoint(t) when one pointed at it
  constructor(root, { tint = "", onSelect = () => {}, onPoint = () => {} } = {}) {
    this.onSelect = onSelect;
    this.onPoint = onPoint;
    this.words = []; // words[i] is the element of token i
    this.current = null; // the position shown
    this.pinned = false;
    this.content = null;
    this.tintName = tint;
    this.text = make("section", "text");
    this.text.setAttribute("role", "group");
    this.text.setAttribute("aria-label",
      "The text. Left and right arrow keys move from word to word, Enter keeps one open, Escape lets go.");
    this.strip = new SurprisalStrip(
      (t) => this.point(t),
      (t) => { this.pin(t, true); this.words[t + 1].scrollIntoView({ block: "nearest" }); });
    this.panel = make("section", "panel");
    this.panel.setAttribute("aria-label", "What the model did at this word");
    this.panel.tabIndex = 0;
    this.key = make("ul", "key");
    this.key.setAttribute("aria-label", "Key");
    this.tints = make("select");
    this.ramp = make("span", "ramp amber");
    this.rampEnd = make("span", "");
    const tinted = make("label", "toggle", "Tint by ", this.tints, this.ramp, this.rampEnd);
    this.bar = make("div", "bar", this.key, tinted);
    this.spoken = make("p", "hidden");
    this.spoken.setAttribute("aria-live", "polite");
    this.column = make("div", "column", this.text, this.strip.element);
    root.classList.add("reader");
    root.append(this.bar, make("div", "sheet", this.column, this.panel), this.spoken);
    this.tints.addEventListener("change", () => { this.tintName = this.tints.value; this.tint(); });
    this.listen();
  }

  spell(token) { return token === this.content.eos ? "¶" : token; }

  isUnknown(token) { return token === UNK || this.content.unknown.includes(token); }

  // what a vocabulary makes of a token
  asRead(token) { return this.isUnknown(token) ? UNK : token; }

  // show another content, or the same text in another setting; `before`: its bits as trained
  fill(content, { position = null, pinned = false, before = null } = {}) {
    const same = this.content && this.content.spans === content.spans &&
      this.content.tokens.length === content.tokens.length &&
      this.content.tokens.every((token, i) => token === content.tokens[i]);
    this.clear();
    this.content = content;
    this.last = content.tokens.length - 2;
    this.view = viewOf(this);
    if (!same) this.layText();
    this.words.forEach((word, i) => {
      const unknown = this.isUnknown(content.tokens[i]), had = content.cache?.chance[i - 1] > 0;
      word.classList.toggle("unknown", unknown);
      word.classList.toggle("had", had);
      word.title = (unknown ? "not in the vocabulary: read as <unk>. " : "") + (had ? "the cache had it" : "");
    });
    this.text.classList.toggle("short", content.tokens.length <= FEW_WORDS + 1);
    this.strip.show(content.bits, content.tokens.slice(1).map((token) => this.spell(token)), before);
    this.view.layPanel();
    this.cached = content.cache ? new CacheView(this) : null;
    this.tint();
    this.current = null;
    this.pinned = pinned;
    const chosen = position === null ? (this.cached ?? this.view).opening() : Math.min(position, this.last);
    if (chosen >= 0) this.show(chosen);
  }

  layText() {
    const { eos, tokens } = this.content;
    const page = document.createDocumentFragment();
    this.words = [];
    let line = page.appendChild(make("p"));
    line.dir = "auto";
    tokens.forEach((token, i) => {
      const word = make("span", token === eos ? "w mark" : "w", this.spell(token));
      if (line.children.length && !hugsLeft(token) && !hugsRight(tokens[i - 1])) line.append(" ");
      line.append(word);
      this.words.push(word);
      if (i === 0) { word.classList.add("still"); return; } // it opens the text; nothing was guessed
      word.dataset.t = i - 1;
      word.tabIndex = -1;
      word.setAttribute("role", "button");
      word.setAttribute("aria-pressed", "false");
      if (token === eos) word.setAttribute("aria-label", "end of line");
      if (token === eos && i < tokens.length - 1) {
        line = page.appendChild(make("p"));
        line.dir = "auto";
      }
    });
    this.text.replaceChildren(page);
  }

  tint() {
    const options = this.view.tints;
    if (!(this.tintName in options)) this.tintName = "";
    this.tints.replaceChildren(...["", ...Object.keys(options)].map((name) => {
      const option = make("option", "", name || "nothing");
      option.value = name;
      option.selected = name === this.tintName;
      return option;
    }));
    const chosen = options[this.tintName];
    this.text.classList.toggle("tinted", Boolean(chosen));
    this.ramp.hidden = this.rampEnd.hidden = !chosen;
    if (!chosen) return;
    this.rampEnd.textContent = chosen.most;
    this.words.forEach((word, i) => { if (i) word.style.setProperty("--tint", chosen.share(i - 1).toFixed(3)); });
  }

  clear() {
    if (this.current === null) return;
    for (const word of this.shaded) {
      word.classList.remove("seen");
      delete word.dataset.percent;
    }
    this.words[this.current].classList.remove("read");
    const target = this.words[this.current + 1];
    target.classList.remove("target");
    target.setAttribute("aria-pressed", "false");
    target.tabIndex = -1;
  }

  show(t) {
    this.clear();
    this.current = t;
    this.shaded = [];
    for (const { from, to, weight, label } of (this.cached ?? this.view).seen(t)) {
      const shade = (Math.min(weight / (this.content.cache ?? this.content).darkest, 1) ** 0.6).toFixed(3);
      const words = this.words.slice(from, to + 1);
      for (const word of words) {
        word.style.setProperty("--shade", shade);
        word.classList.add("seen");
      }
      this.shaded.push(...words);
      if (label) this.words[Math.floor((from + to) / 2)].dataset.percent = label;
    }
    this.words[t].classList.add("read");
    const target = this.words[t + 1];
    target.classList.add("target");
    target.setAttribute("aria-pressed", String(this.pinned));
    target.tabIndex = 0; // the text is one stop of the Tab key: the word shown
    this.strip.mark(t);
    this.view.tell(t);
    this.cached?.tell(t);
  }

  point(t) {
    if (this.pinned || t === this.current) return;
    this.show(t);
    this.onPoint(t);
  }

  // what a person does: show a position, and keep it or not
  pin(t, keep) {
    this.pinned = keep;
    this.show(t);
    this.spoken.textContent = this.view.speak(t) + (this.cached?.speak(t) ?? "");
    this.onSelect(t, keep);
  }

  release() { if (this.pinned && this.current !== null) this.pin(this.current, false); }

  neighbour(t, key) {
    if (key === "ArrowRight") return Math.min(t + 1, this.last);
    if (key === "ArrowLeft") return Math.max(t - 1, 0);
    if (key === "Home") return 0;
    if (key === "End") return this.last;
    return key === "ArrowDown" ? this.lineAway(t, 1) : key === "ArrowUp" ? this.lineAway(t, -1) : null;
  }

  lineAway(t, step) {
    const box = (i) => this.words[i + 1].getBoundingClientRect();
    const from = box(t), middle = from.left + from.width / 2;
    let best = t, top = null, miss = Infinity;
    for (let i = t + step; i >= 0 && i <= this.last; i += step) {
      const here = box(i);
      if (Math.abs(here.top - from.top) < from.height / 2) continue;
      top ??= here.top;
      if (Math.abs(here.top - top) > from.height / 2) break;
      const distance = Math.abs(here.left + here.width / 2 - middle);
      if (distance < miss) { miss = distance; best = i; }
    }
    return best;
  }

  listen() {
    const positionOf = (event) => {
      const word = event.target.closest(".w[data-t]");
      return word ? Number(word.dataset.t) : null;
    };
    const follow = (event) => {
      const t = positionOf(event);
      if (t !== null && (event.type === "focusin" || event.pointerType === "mouse")) this.point(t);
    };
    this.text.addEventListener("pointerover", follow);
    this.text.addEventListener("focusin", follow);
    this.text.addEventListener("click", (event) => {
      const t = positionOf(event);
      if (t !== null) this.pin(t, !(this.pinned && t === this.current));
    });
    this.text.addEventListener("keydown", (event) => {
      const t = positionOf(event);
      if (t === null || event.altKey || event.ctrlKey || event.metaKey) return;
      const next = this.neighbour(t, event.key);
      if (next !== null) {
        event.preventDefault();
        this.pin(next, this.pinned);
        this.words[next + 1].focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.pin(t, !(this.pinned && t === this.current));
      }
    });
  }
}

// what a word's panel has in every view; `chance` is what the whole model gave the word that came
function cameHead(reader, t, expected) {
  const { tokens, bits } = reader.content;
  const read = tokens[t], came = tokens[t + 1], asRead = reader.asRead(came);
  const rank = expected.findIndex(([word]) => word === asRead);
  const chance = rank >= 0 && !reader.cached ? expected[rank][1] : 2 ** -bits[t];
  const guess = rank === 0 ? "its first guess" : rank > 0 ? `its guess no. ${rank + 1}` : `not among its first ${expected.length}`;
  const line = make("p", "note", make("b", "", inBits(bits[t])));
  if (bits[t] !== null) line.append(" of ", term("surprisal"), ` (probability ${percent(chance)})`);
  if (expected.length) line.append(`, ${guess}`);
  const parts = [make("p", "note", `After “${reader.spell(read)}” came`), make("p", "word", reader.spell(came)), line];
  if (came !== asRead) parts.push(make("p", "note", "not in its vocabulary: read as ", term("<unk>")));
  return parts;
}

function heading(text, ...more) {
  return make("h2", "", text, ...more);
}
