"use strict";
// The page of a run that reads what is typed, with the weights inside.

const MOST_TOKENS = 2000; // each has a place on the page
const page = JSON.parse(byId("record").textContent);
const known = new Map(page.words.map((word, id) => [word, id]));
const idOf = (token) => known.get(token) ?? known.get(UNK);
const network = new Network(page, decodeHalves(page.weights));
const reader = new Reader(byId("reader"), { tint: "surprisal" });
const area = byId("text");
let words = []; // of the text, as `positionAt` takes them

const writtenIn = (text) => text.match(WRITTEN) ?? [];

// the words of each line of a text, without blank lines at its end
function linesOf(text) {
  let begin = 0;
  const lines = text.split("\n").map((line) => {
    const cut = cutLine(line, page, known).map(({ start, tokens }) => ({ start: begin + start, tokens }));
    begin += line.length + 1;
    return cut;
  });
  const filled = (line) => line.length > 0;
  lines.splice(lines.findLastIndex(filled) + 1);
  return page.alone ? lines.slice(lines.findIndex(filled)) : lines;
}

// all tokens: <eos> closes each line, and opens the text if the model was trained so
function tokensOf(lines) {
  const tokens = page.opens ? [page.eos] : [];
  words = [];
  for (const line of lines) {
    for (const { start, tokens: cut } of line) {
      words.push({ start, tokens: cut.map((_, i) => tokens.length + i) });
      tokens.push(...cut);
    }
    tokens.push(page.eos);
  }
  return tokens;
}

// the first word of a line that no <eos> opens is read, not predicted
const silent = (tokens, t) => !page.opens && tokens[t] === page.eos;

const opensContext = (tokens) => (t) => t === 0 || (page.alone && tokens[page.opens ? t : t - 1] === page.eos);

const spelled = ({ best }) => best.map(([id, chance]) => [page.words[id], chance]);

// what the reader draws
function contentOf(tokens, steps) {
  const { eos, memory } = page, seen = steps.map((step, t) => (silent(tokens, t) ? null : step));
  const content = { spans: false, eos, tokens, unknown: [...new Set(tokens)].filter((token) => !known.has(token)),
    bits: seen.map((step) => step && step.bits), expected: seen.map((step) => (step ? spelled(step) : [])),
    weights: null, mean: null, darkest: 1 };
  if (!memory) return content;
  const rows = seen.map((step) => (step ? step.attention : []));
  const window = memory.window ?? Math.max(1, ...rows.map((row) => row.length)), full = rows.filter((row) => row.length === window);
  return { ...content, window, nearest: memory.nearest, held: rows.map((row) => row.length),
    weights: rows.map((row) => [...Array(window - row.length).fill(0), ...row.map((share) => UNITS * share)]),
    mean: full.length > 1 ? full[0].map((_, j) => 100 * full.reduce((sum, row) => sum + row[j], 0) / full.length) : null,
    darkest: Math.ceil(20 * full.flat().reduce((a, b) => Math.max(a, b), 0)) / 20 || 1 }; // a round one
}

function countsOf(tokens, bits, text) {
  const isKnown = (i) => known.has(tokens[i]) && tokens[i] !== UNK;
  const mean = (values) => {
    const scored = values.filter((value) => value !== null);
    const sum = scored.length ? scored.reduce((a, b) => a + b) / scored.length : null;
    return { bits: sum, perplexity: sum === null ? null : 2 ** sum };
  };
  return { ...mean(bits), known: mean(bits.filter((_, t) => isKnown(t + 1))), words: writtenIn(text).length,
    unknown: words.filter(({ tokens: numbers }) => !numbers.every(isKnown)).length };
}

// what a click on a token writes; null: it is no word of the text, or a part of a character
function typed(token) {
  if (token === UNK) return null;
  if (token === page.eos) return "\n";
  if (!inLetters(page.rule)) return (/(^|\s)$/.test(area.value) ? "" : " ") + token;
  if (token === (page.rule === "bytes" ? "Ġ" : "▁")) return " ";
  return [...token].length === 1 && (page.rule === "characters" || token < "\x7f") ? token : null;
}

function layNext(candidates) {
  const shown = candidates.filter(([token]) => typed(token) !== null);
  byId("next").hidden = !shown.length;
  byId("next").replaceChildren("Next: ", ...shown.map(([token, chance]) => {
    const take = button(reader.spell(token), () => {
      area.value += typed(token);
      area.focus();
      read(area.value.length);
    });
    take.append(" ", make("span", "chance", percent(chance)));
    return take;
  }));
}

// read what is written, and show the word at the caret; null: one that is worth a look
function read(caret) {
  growTextarea();
  const whole = tokensOf(linesOf(area.value)), tokens = whole.slice(0, MOST_TOKENS);
  const reserved = writtenIn(area.value).includes(page.eos);
  tellTrouble(reserved ? new Error(`the word ${page.eos} is reserved for the end of a line: write it another way`)
    : whole.length > MOST_TOKENS ? new Error(`of ${whole.length.toLocaleString("en")} tokens only the first ${MOST_TOKENS.toLocaleString("en")} are read`) : null);
  const beyond = words.find(({ tokens: cut }) => last(cut) >= MOST_TOKENS); // the first word that is not read
  if (beyond) words.splice(words.indexOf(beyond));
  const text = beyond ? area.value.slice(0, beyond.start) : area.value;
  const empty = reserved || tokens.length < 2;
  document.body.classList.toggle("empty", empty);
  if (empty) {
    byId("status").textContent = "Write something, or choose an example.";
    layNext([]);
    return;
  }
  // after line ends the first word of a line is expected; spaces are tokens of characters and bytes alone
  const ends = (inLetters(page.rule) ? /\n*$/ : /[ \t\n]*$/).exec(area.value)[0].split("\n").length - 1;
  const closed = [...tokens, ...Array(ends).fill(page.eos)];
  const steps = network.read(closed.map(idOf), opensContext(closed));
  const content = contentOf(tokens, steps.slice(0, tokens.length - 1));
  reader.fill(content, { position: caret === null ? null : positionAt(caret, words) });
  tellCounts(countsOf(tokens, content.bits, text));
  layNext(beyond || silent(closed, closed.length - 2) ? [] : spelled(last(steps)));
}

function open({ text }) {
  area.value = text;
  read(null);
}

function followCaret() {
  const t = positionAt(area.selectionStart, words);
  if (!reader.pinned && t !== null && t <= reader.last && t !== reader.current) reader.show(t);
}

area.addEventListener("input", () => {
  byId("look").hidden = true;
  byId("examples").value = "";
  read(area.selectionStart);
});
area.addEventListener("keyup", followCaret);
area.addEventListener("click", followCaret);
byId("examples").addEventListener("change", (event) => {
  const example = page.examples[event.target.value];
  if (!example) return;
  open(example);
  tellLook(example);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") reader.release(); });
reader.layFold(matchMedia("(max-width: 56rem)").matches); // where it would cover the text
open(page.examples[0]);
layExamples(page.examples, area.value);
