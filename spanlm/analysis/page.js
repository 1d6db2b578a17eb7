"use strict";
(() => {
  // Position t: token t was just read, token t + 1 is being guessed. Column j of weights[t] is lag window - 1 - j + nearest.
  const { eos, window: size, nearest, tokens, weights, bits, expected, mean, darkest } = JSON.parse(byId("record").textContent);
  const NAMED = 3; // sources named in words
  const MOST_BITS = 16; // the darkest tint
  const words = []; // words[i] is the element of token i
  let current = null; // the position shown
  let pinned = false;

  function byId(id) { return document.getElementById(id); }
  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }
  const spell = (token) => (token === eos ? "¶" : token);
  const percent = (share) => (share >= 0.0995 ? (100 * share).toFixed(0) : (100 * share).toPrecision(share < 0.001 ? 1 : 2)) + " %";
  const lagOf = (j) => size - 1 - j + nearest;
  const signed = (lag) => (lag ? `−${lag}` : "0");
  const lagsOf = (t) => weights[t]
    .map((weight, j) => ({ weight: weight / 1000, lag: lagOf(j), source: t - lagOf(j) }))
    .filter(({ source }) => source >= 0);

  function layText() {
    const page = document.createDocumentFragment();
    let line = page.appendChild(make("p"));
    tokens.forEach((token, i) => {
      const word = line.appendChild(make("span", token === eos ? "w mark" : "w", spell(token)));
      line.append(" ");
      line.dir = "auto";
      words.push(word);
      if (i === 0) { word.classList.add("still"); return; } // it opens the text; nothing was guessed
      word.dataset.t = i - 1;
      if (spell(token).length === 1) word.classList.add("thin");
      word.tabIndex = -1;
      word.setAttribute("role", "button");
      word.setAttribute("aria-pressed", "false");
      if (token === eos) word.setAttribute("aria-label", "end of line");
      word.style.setProperty("--tint", Math.min(bits[i - 1] / MOST_BITS, 1).toFixed(3));
      if (token === eos && i < tokens.length - 1) line = page.appendChild(make("p"));
    });
    byId("text").append(page);
  }

  function clear() {
    if (current === null) return;
    for (const { source } of lagsOf(current)) {
      words[source].classList.remove("seen");
      delete words[source].dataset.percent;
    }
    words[current].classList.remove("read");
    words[current + 1].classList.remove("target");
    words[current + 1].setAttribute("aria-pressed", "false");
    words[current + 1].tabIndex = -1;
  }

  function show(t) {
    clear();
    current = t;
    for (const { weight, source } of lagsOf(t)) {
      const word = words[source];
      word.style.setProperty("--shade", (Math.min(weight / darkest, 1) ** 0.6).toFixed(3));
      word.classList.add("seen");
      if (weight >= 0.01) word.dataset.percent = Math.round(100 * weight);
    }
    words[t].classList.add("read");
    const target = words[t + 1];
    target.classList.add("target");
    target.setAttribute("aria-pressed", String(pinned));
    target.tabIndex = 0; // the text is one stop of the Tab key: the word shown
    showCame(t);
    showExpected(t);
    showLags(t);
  }

  function showCame(t) {
    const rank = expected[t].findIndex(([word]) => word === tokens[t + 1]);
    const guess = rank === 0 ? "its first guess" : rank > 0 ? `its guess no. ${rank + 1}` : `not among its first ${expected[t].length}`;
    byId("after").textContent = `After “${spell(tokens[t])}” came`;
    byId("came").textContent = spell(tokens[t + 1]);
    byId("surprise").replaceChildren(
      make("b", "", `${bits[t].toFixed(1)} bits`),
      ` of surprisal (probability ${percent(2 ** -bits[t])})` + (expected[t].length ? `, ${guess}` : ""));
  }

  function showExpected(t) {
    const most = expected[t].length ? expected[t][0][1] : 1;
    byId("expected").replaceChildren(...expected[t].map(([word, chance]) => {
      const item = make("li", word === tokens[t + 1] ? "hit" : "");
      const track = make("span", "track");
      track.append(make("span", "fill"));
      track.firstChild.style.width = `${100 * chance / most}%`;
      item.append(make("span", "word", spell(word)), track, make("span", "chance", percent(chance)));
      return item;
    }));
  }

  function showLags(t) {
    const lags = lagsOf(t);
    const top = Math.max(darkest, 0.001, ...lags.map(({ weight }) => weight), ...(mean || []).map((value) => value / 100));
    const every = [1, 5, 10, 20, 50, 100].find((step) => size / step <= 6) ?? size;
    byId("strip").replaceChildren(...weights[t].map((weight, j) => {
      const lag = lagOf(j);
      const slot = make("div", "slot");
      const now = slot.appendChild(make("div", "now"));
      now.style.height = `${weight / 10 / top}%`;
      if (mean) slot.appendChild(make("div", "usual")).style.bottom = `${mean[j] / top}%`;
      if (lag === nearest || lag % every === 0) slot.append(make("span", "lag", signed(lag)));
      return slot;
    }));
    const peaks = lags.filter(({ weight }) => weight > 0).sort((a, b) => b.weight - a.weight).slice(0, NAMED);
    byId("strip").setAttribute("aria-label", "Attention by lag. " + peaks.map(inWords).join(", "));
    byId("peaks").replaceChildren(...peaks.map(({ source, lag, weight }) => {
      const item = make("li");
      item.append(make("span", "word", spell(tokens[source])), make("span", "", signed(lag)), make("span", "", percent(weight)));
      return item;
    }));
    if (!peaks.length) byId("peaks").append(make("li", "", "nothing: its memory is still empty"));
  }

  function inWords({ source, lag, weight }) {
    return `${spell(tokens[source])}, ${lag ? `${lag} back` : "just read"}, ${percent(weight)}`;
  }

  function speak(t) {
    const best = lagsOf(t).reduce((a, b) => (b.weight > a.weight ? b : a), { weight: 0 });
    byId("spoken").textContent = `After ${spell(tokens[t])} came ${spell(tokens[t + 1])}, ${bits[t].toFixed(1)} bits.` +
      (best.weight ? ` It looked most at ${inWords(best)}.` : "");
  }

  function pin(t, keep) {
    pinned = keep;
    show(t);
    speak(t);
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
    if (!match || Number(match[1]) >= bits.length) return false;
    pinned = true;
    show(Number(match[1]));
    words[current + 1].scrollIntoView({ block: "center" });
    return true;
  }

  function firstExample() {
    // open on the sharpest look back of the opening lines, so that the page explains itself before it is touched
    const full = size - 1 + nearest;
    let best = Math.min(full, bits.length - 1);
    for (let t = best; t < Math.min(bits.length, full + 80); t++) {
      if (Math.max(...weights[t]) > Math.max(...weights[best])) best = t;
    }
    show(best);
  }

  function neighbour(t, key) {
    const last = bits.length - 1;
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
    for (let i = t + step; i >= 0 && i < bits.length; i += step) {
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
  byId("darkest").textContent = (weights.flat().some((weight) => weight > 1000 * darkest) ? "≥ " : "") + percent(darkest);
  if (!mean) byId("mean-key").hidden = true;
  listen(byId("text"));
  if (!readAddress()) firstExample();
})();
