"use strict";
// A text whose words can be pointed at, as a component that any page can hold, and fill again with other content.
// Position t: token t was just read, token t + 1 is being guessed.

const UNK = "<unk>";
const LEAST_AXIS = 16; // bits of the darkest tint, which is the top of the chart
const FUNCTION_WORD = /^(an?|and|are|as|at|be|been|but|by|can|could|did|do|does|for|from|had|has|have|he|her|his|i|if|in|is|it|its|may|must|my|no|not|of|on|or|our|shall|she|should|so|than|that|the|their|them|then|there|these|they|this|those|to|was|we|were|what|when|where|which|who|will|with|would|you|your)$/i;
const OPENING_WORDS = 80; // so many from its beginning may be open when a page opens
const FEW_WORDS = 24; // a text so short is set larger, and its chart names every word
const UNITS = 10000; // of a weight: the content has whole numbers
const SOME_WORDS = 40; // so many names still fit beside each other on a wide screen

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function option(value, text, selected = false) {
  const element = make("option", "", text);
  element.value = value;
  element.selected = selected;
  return element;
}

function button(text, act, className = "") {
  const element = make("button", className, text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

// put a hash, or none, into the address
function writeHash(hash) {
  if (location.hash === hash) return;
  try {
    history.replaceState(null, "", hash || location.pathname + location.search);
  } catch {
    // browsers refuse many changes in a short time, as of a held arrow key; the page goes on without
  }
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
const shareLabel = (share) => (share >= 0.01 ? wholePercent(share) : "");
const inBits = (bits) => (bits === null ? "not predicted" : `${bits.toFixed(1)} bits`);
const signed = (lag) => (lag ? `−${lag}` : "0");
const hugsLeft = (word) => /^([.,;:!?%)\]}…»”’]+|n't|'(s|re|ve|ll|d|m|t)?)$/i.test(word);
const hugsRight = (word) => /^[(\[{«“‘]+$/.test(word);

// the top of an axis of surprisal on which all these bits have room
const axisOf = (...lists) => Math.max(LEAST_AXIS, 4 * Math.ceil(Math.max(0, ...lists.flat()) / 4));

// a length along an axis whose end is a custom property, so that charts side by side can share it
const along = (axis, value) => `calc(${(100 * value).toFixed(3)}% / var(--${axis}-end))`;

// the content word with the largest value from position `least` on, near the beginning: neither a sign nor a function word
function opening({ content: { tokens, unknown } }, values, least = 1) {
  const best = (from, keeps) => {
    let found = -1;
    for (let t = from; t < Math.min(values.length, from + OPENING_WORDS); t++) {
      if (keeps(tokens[t + 1]) && values[t] !== null && (found < 0 || values[t] > values[found])) found = t;
    }
    return found;
  };
  const content = (token) => /[\p{L}\p{N}]/u.test(token) && !/^<.*>$/.test(token) && !FUNCTION_WORD.test(token) && !unknown.includes(token);
  return [best(least, content), best(0, content), best(0, () => true), 0].find((t) => t >= 0);
}

// what was expected, best first, beside what came
function guessList(expected, came, spell, none = "nothing: it is empty") {
  const items = expected.map(([word, chance]) => {
    const fill = make("span", "fill");
    fill.style.width = along("guess", chance);
    const item = make("li", word === came ? "hit" : "");
    item.append(make("span", "word", spell(word)), make("span", "track", fill), make("span", "chance", percent(chance)));
    return item;
  });
  return items.length ? items : [make("li", "none", none)];
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

  // `unknown` says of each word whether the vocabulary lacks it, `most` how many bits the axis has
  show(bits, words, unknown, most, before = null) {
    this.bits = bits;
    this.count = bits.length;
    this.most = most;
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
    const mean = (keeps) => {
      const scored = bits.filter((value, t) => value !== null && keeps(t));
      return (scored.reduce((sum, value) => sum + value, 0) / Math.max(scored.length, 1)).toFixed(1);
    };
    const known = unknown.some(Boolean) ? `, ${mean((t) => !unknown[t])} without unknown words` : "";
    this.caption.textContent = `Surprisal word by word; mean ${mean(() => true)} bits${known}${before ? ". Ticks: as trained" : ""}`;
  }

  mark(t) {
    const bits = this.bits[t];
    this.now.setAttribute("d", bits === null ? "" : `M${t + 0.5} 100V${(100 - 100 * bits / this.most).toFixed(1)}`);
  }
}

class Reader {
  // onSelect(t, pinned) is called when a person chose a position, onPoint(t) when one pointed at it; side: A, B … of several
  constructor(root, { tint = "", side = "", onSelect = () => {}, onPoint = () => {} } = {}) {
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
      `The text${side && `, ${side}`}. Left and right arrow keys move from word to word, Enter keeps one open, Escape lets go.`);
    this.strip = new SurprisalStrip(
      (t) => this.point(t),
      (t) => { this.pin(t, true); this.words[t + 1].scrollIntoView({ block: "nearest" }); });
    this.panel = make("section", "panel");
    this.panel.setAttribute("aria-label", `What the model${side && ` ${side}`} did at this word`);
    this.panel.tabIndex = 0;
    this.fold = button("", () => this.layFold(!this.folded), "bare fold");
    this.layFold(false);
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
    this.root = root;
    root.classList.add("reader");
    root.append(this.bar, make("div", "sheet", this.column, this.panel), this.spoken);
    this.tints.addEventListener("change", () => { this.tintName = this.tints.value; this.tint(); });
    this.listen();
  }

  spell(token) { return token === this.content.eos ? "¶" : token; }

  isUnknown(token) { return token === UNK || this.content.unknown.includes(token); }

  // what a vocabulary makes of a token
  asRead(token) { return this.isUnknown(token) ? UNK : token; }

  // on a small screen the panel covers the text, and can be folded
  layFold(folded) {
    this.folded = folded;
    this.panel.classList.toggle("folded", folded);
    this.fold.setAttribute("aria-expanded", String(!folded));
    this.fold.textContent = folded ? "More ▴" : "Fold ▾";
  }

  // show another content, or the same text in another setting; `before`: its bits as trained; `most`: the axis, in bits
  fill(content, { position = null, pinned = false, before = null, most = axisOf(content.bits, before ?? []) } = {}) {
    const shown = (content.written ?? content.tokens).map((token) => (token === content.eos ? "¶" : token));
    const same = this.content && this.content.spans === content.spans &&
      this.shown.length === shown.length && this.shown.every((word, i) => word === shown[i]);
    this.clear();
    this.content = content;
    this.shown = shown; // as they were typed
    this.most = most;
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
    this.strip.show(content.bits, shown.slice(1), content.tokens.slice(1).map((token) => this.isUnknown(token)), most, before);
    this.view.layPanel();
    this.panel.append(this.fold);
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
      const word = make("span", token === eos ? "w mark" : "w", this.shown[i]);
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
    this.tints.replaceChildren(...["", ...Object.keys(options)].map((name) => option(name, name || "nothing", name === this.tintName)));
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
    this.scale();
  }

  // lay the bars of the panel along axes: { guess, look }, the probability and the weight at their ends
  scale(axes = this.view.axes) {
    for (const [name, end] of Object.entries(axes)) this.root.style.setProperty(`--${name}-end`, Math.max(end, 1e-9));
    this.view.lags.dataset.top = percent(axes.look);
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
  const came = tokens[t + 1], asRead = reader.asRead(came);
  const rank = reader.content.by_word ? -1 : expected.findIndex(([word]) => word === asRead);
  const chance = rank >= 0 && !reader.cached ? expected[rank][1] : 2 ** -bits[t];
  const guess = rank === 0 ? "its first guess" : rank > 0 ? `its guess no. ${rank + 1}` : `not among its first ${expected.length}`;
  const line = make("p", "note", make("b", "", inBits(bits[t])));
  if (bits[t] !== null) line.append(" of ", term("surprisal"), ` (probability ${percent(chance)})`);
  if (expected.length && !reader.content.by_word) line.append(`, ${guess}`);
  const parts = [make("p", "note", `After “${reader.shown[t]}” came`), make("p", "word", reader.shown[t + 1]), line];
  if (came !== asRead) parts.push(make("p", "note", "not in its vocabulary: read as ", term("<unk>")));
  return parts;
}
