"use strict";
// A text whose words can be pointed at. Position t: token t was just read, token t + 1 is being guessed.

const byId = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const record = JSON.parse(byId("record").textContent);
const spell = (token) => (token === record.eos ? "¶" : token);
const percent = (share) => (share >= 0.0995 ? (100 * share).toFixed(0) : (100 * share).toPrecision(share < 0.001 ? 1 : 2)) + " %";
const inBits = (bits) => (bits === null ? "not predicted" : `${bits.toFixed(1)} bits`);
const signed = (lag) => (lag ? `−${lag}` : "0");

const MOST_BITS = 16; // the darkest tint by surprisal

// how `list` shows what was expected, best first, beside what came; `most` is the chance of the longest bar
function tellExpected(list, expected, came, most) {
  list.replaceChildren(...expected.map(([word, chance]) => {
    const item = make("li", word === came ? "hit" : "");
    const track = make("span", "track");
    track.append(make("span", "fill"));
    track.firstChild.style.width = `${100 * chance / most}%`;
    item.append(make("span", "word", spell(word)), track, make("span", "chance", percent(chance)));
    return item;
  }));
}

function tellCame(read, came, bits, expected) {
  const rank = expected.findIndex(([word]) => word === came);
  const guess = rank === 0 ? "its first guess" : rank > 0 ? `its guess no. ${rank + 1}` : `not among its first ${expected.length}`;
  byId("after").textContent = `After “${spell(read)}” came`;
  byId("came").textContent = spell(came);
  byId("surprise").replaceChildren(
    make("b", "", inBits(bits)),
    (bits === null ? "" : ` of surprisal (probability ${percent(2 ** -bits)})`) + (expected.length ? `, ${guess}` : ""));
}

// view: seen(t) gives { from, to, weight, label } of what is shaded, darkest its deepest weight, tint(t) the share of a
// word's tint, tell(t, words) fills the panel, speak(t) says it in words, opening() is the position to begin with
function readText(view) {
  const { eos, tokens } = record;
  const words = []; // words[i] is the element of token i
  const last = tokens.length - 2;
  let current = null; // the position shown
  let pinned = false;

  function layText() {
    const page = document.createDocumentFragment();
    let line = page.appendChild(make("p"));
    tokens.forEach((token, i) => {
      const word = line.appendChild(make("span", token === eos ? "w mark" : "w", spell(token)));
      line.append(" ");
      line.dir = "auto";
      words.push(word);
      if (record.unknown.includes(token)) {
        word.classList.add("unknown");
        word.title = "not in the vocabulary: read as <unk>";
      }
      if (i === 0) { word.classList.add("still"); return; } // it opens the text; nothing was guessed
      word.dataset.t = i - 1;
      if (spell(token).length === 1) word.classList.add("thin");
      word.tabIndex = -1;
      word.setAttribute("role", "button");
      word.setAttribute("aria-pressed", "false");
      if (token === eos) word.setAttribute("aria-label", "end of line");
      word.style.setProperty("--tint", view.tint(i - 1).toFixed(3));
      if (token === eos && i < tokens.length - 1) line = page.appendChild(make("p"));
    });
    byId("text").append(page);
  }

  function clear() {
    if (current === null) return;
    for (const { from, to } of view.seen(current)) {
      for (const word of words.slice(from, to + 1)) {
        word.classList.remove("seen");
        delete word.dataset.percent;
      }
    }
    words[current].classList.remove("read");
    words[current + 1].classList.remove("target");
    words[current + 1].setAttribute("aria-pressed", "false");
    words[current + 1].tabIndex = -1;
  }

  function show(t) {
    clear();
    current = t;
    for (const { from, to, weight, label } of view.seen(t)) {
      const shade = (Math.min(weight / view.darkest, 1) ** 0.6).toFixed(3);
      for (const word of words.slice(from, to + 1)) {
        word.style.setProperty("--shade", shade);
        word.classList.add("seen");
      }
      if (label) words[Math.floor((from + to) / 2)].dataset.percent = label;
    }
    words[t].classList.add("read");
    const target = words[t + 1];
    target.classList.add("target");
    target.setAttribute("aria-pressed", String(pinned));
    target.tabIndex = 0; // the text is one stop of the Tab key: the word shown
    view.tell(t, words);
  }

  function pin(t, keep) {
    pinned = keep;
    show(t);
    byId("spoken").textContent = view.speak(t);
    writeAddress(keep ? `#pos=${t}` : "");
  }

  function writeAddress(hash) {
    if (location.hash === hash) return;
    try {
      history.replaceState(null, "", hash || location.pathname + location.search);
    } catch {
      // browsers refuse many changes in a short time, as of a held arrow key; the page goes on without
    }
  }

  function readAddress() {
    const match = /^#pos=(\d+)$/.exec(location.hash);
    if (!match || Number(match[1]) > last) return false;
    pinned = true;
    show(Number(match[1]));
    words[current + 1].scrollIntoView({ block: "center" });
    return true;
  }

  function neighbour(t, key) {
    if (key === "ArrowRight") return Math.min(t + 1, last);
    if (key === "ArrowLeft") return Math.max(t - 1, 0);
    if (key === "Home") return 0;
    if (key === "End") return last;
    return key === "ArrowDown" ? lineAway(t, 1) : key === "ArrowUp" ? lineAway(t, -1) : null;
  }

  function lineAway(t, step) {
    const from = words[t + 1].getBoundingClientRect();
    const middle = from.left + from.width / 2;
    let best = t, top = null, miss = Infinity;
    for (let i = t + step; i >= 0 && i <= last; i += step) {
      const box = words[i + 1].getBoundingClientRect();
      if (Math.abs(box.top - from.top) < from.height / 2) continue;
      top ??= box.top;
      if (Math.abs(box.top - top) > from.height / 2) break;
      const distance = Math.abs(box.left + box.width / 2 - middle);
      if (distance < miss) { miss = distance; best = i; }
    }
    return best;
  }

  const positionOf = (event) => {
    const word = event.target.closest(".w[data-t]");
    return word ? Number(word.dataset.t) : null;
  };

  function listen(text) {
    text.addEventListener("pointerover", (event) => {
      const t = positionOf(event);
      if (t !== null && !pinned && t !== current && event.pointerType === "mouse") show(t);
    });
    text.addEventListener("click", (event) => {
      const t = positionOf(event);
      if (t !== null) pin(t, !(pinned && t === current));
    });
    text.addEventListener("focusin", (event) => {
      const t = positionOf(event);
      if (t !== null && !pinned && t !== current) show(t);
    });
    text.addEventListener("keydown", (event) => {
      const t = positionOf(event);
      if (t === null || event.altKey || event.ctrlKey || event.metaKey) return;
      const next = neighbour(t, event.key);
      if (next !== null) {
        event.preventDefault();
        pin(next, pinned);
        words[next + 1].focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pin(t, !(pinned && t === current));
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && pinned) pin(current, false);
    });
    byId("tint").addEventListener("change", (event) => text.classList.toggle("tinted", event.target.checked));
    addEventListener("hashchange", readAddress);
  }

  layText();
  listen(byId("text"));
  if (!readAddress()) show(view.opening());
}
