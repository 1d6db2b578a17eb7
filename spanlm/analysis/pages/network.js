"use strict";
// A run computed in the page: an LSTM, a memory of its earlier outputs, a softmax. The papers' equations are in the
// docstrings of spanlm/models. A vector is a Float32Array; so is a matrix, row after row.

// base64 of little-endian numbers of 16 bits: a sign, 5 bits of exponent, 10 of fraction
function decodeHalves(base64) {
  const values = Float32Array.from({ length: 1 << 16 }, (_, half) => {
    const exponent = (half >> 10) & 31, fraction = half & 1023;
    const size = exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
    return half >> 15 ? -size : size;
  });
  const bytes = atob(base64), numbers = new Float32Array(bytes.length / 2);
  for (let i = 0; i < numbers.length; i++) numbers[i] = values[bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8];
  return numbers;
}

// add the product of a matrix and x to `sum`; four sums at a time, which processors do at once
function product(matrix, x, sum = new Float32Array(matrix.length / x.length)) {
  const columns = x.length, even = columns - columns % 4;
  for (let row = 0, at = 0; row < sum.length; row++) {
    let a = 0, b = 0, c = 0, d = 0, i = 0;
    for (; i < even; i += 4, at += 4) {
      a += matrix[at] * x[i];
      b += matrix[at + 1] * x[i + 1];
      c += matrix[at + 2] * x[i + 2];
      d += matrix[at + 3] * x[i + 3];
    }
    for (; i < columns; i++, at++) a += matrix[at] * x[i];
    sum[row] += a + b + c + d;
  }
  return sum;
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// h and c of a layer, from its gates i, f, g, o and the c before
function cell(gates, before) {
  const size = gates.length / 4, h = new Float32Array(size), c = new Float32Array(size);
  for (let i = 0; i < size; i++) {
    c[i] = sigmoid(gates[i]) * Math.tanh(gates[2 * size + i]) + (before ? sigmoid(gates[size + i]) * before[i] : 0);
    h[i] = sigmoid(gates[3 * size + i]) * Math.tanh(c[i]);
  }
  return { h, c };
}

function softmax(scores) {
  const largest = Math.max(...scores), shares = scores.map((score) => Math.exp(score - largest));
  const total = shares.reduce((sum, share) => sum + share, 0);
  return shares.map((share) => share / total);
}

class Network {
  // sizes: how many of the numbers each weight of the run has; memory: null if it attends to nothing
  constructor({ words, sizes, layers, memory, expected }, numbers) {
    Object.assign(this, { layers, memory, expected, embedding: sizes["embedding.weight"] / words.length, weights: {}, steps: [] });
    let at = 0;
    for (const [name, size] of Object.entries(sizes)) this.weights[name] = numbers.subarray(at, at += size);
  }

  // the steps of a text, one for each of its ids but the last; what was read before is not read again
  read(ids, opensContext) {
    const { steps } = this;
    let same = 0, first = 0;
    while (same < Math.min(steps.length, ids.length - 1) && steps[same].id === ids[same]) same++;
    steps.length = same;
    for (let t = 0; t < ids.length - 1; t++) {
      if (opensContext(t)) first = t;
      if (t >= same) steps.push(this.step(ids[t], steps.slice(first, t)));
      if (steps[t].next !== ids[t + 1]) this.predict(steps[t], ids[t + 1]);
    }
    return steps;
  }

  // read a word after those of its context
  step(id, context) {
    const { weights, embedding } = this, before = context.at(-1), cells = [];
    let x = weights["embedding.weight"].subarray(id * embedding, (id + 1) * embedding);
    for (let layer = 0; layer < this.layers; layer++) {
      const gates = product(weights[`encoder.lstm.weight_ih_l${layer}`], x, weights[`encoder.lstm.bias_ih_l${layer}`].slice());
      if (before) product(weights[`encoder.lstm.weight_hh_l${layer}`], before.cells[layer].h, gates);
      cells.push(cell(gates, before?.cells[layer].c));
      x = cells[layer].h;
    }
    return this.look({ id, cells }, x, context);
  }

  // attend to the steps before: h is split into key, value and prediction, or is all of them
  look(step, h, context) {
    const { weights, memory } = this, parts = memory?.parts ?? 1, size = h.length / parts;
    const part = (n) => h.subarray(n * size, (n + 1) * size);
    let read = h;
    if (memory) {
      step.value = part(Math.min(1, parts - 1));
      step.key = weights["memory.score"] && product(weights["memory.memory_key.weight"], part(0));
      const slots = (memory.nearest ? context : [...context, step]).slice(memory.window === null ? 0 : -memory.window);
      const query = weights["memory.query.weight"] ? product(weights["memory.query.weight"], part(0)) : new Float32Array(size);
      step.attention = slots.length ? softmax(slots.map(({ key }, j) => this.score(key, query) + memory.slope * j)) : [];
      read = new Float32Array(size);
      slots.forEach(({ value }, j) => { for (let i = 0; i < size; i++) read[i] += step.attention[j] * value[i]; });
    }
    step.features = read;
    if (weights["memory.predict.weight"]) {
      const sum = product(weights["memory.predict.weight"], part(parts - 1), weights["memory.merge.bias"]?.slice());
      if (memory) product(weights["memory.read.weight"], read, sum);
      step.features = sum.map(Math.tanh);
    }
    return step;
  }

  // w · tanh(key + query); where nothing is scored all slots are alike
  score(key, query) {
    const score = this.weights["memory.score"];
    let sum = 0;
    if (score) for (let i = 0; i < score.length; i++) sum += score[i] * Math.tanh(key[i] + query[i]);
    return sum;
  }

  // the bits of the next word, and the words expected in its place: [id, probability], best first
  predict(step, next) {
    const { weights } = this;
    const projection = weights["head.projection.weight"];
    const x = projection ? product(projection, step.features, weights["head.projection.bias"].slice()) : step.features;
    const logits = product(weights["head.weight"] ?? weights["embedding.weight"], x, weights["head.bias"]?.slice());
    const best = [];
    let largest = -Infinity, total = 0;
    for (let id = 0; id < logits.length; id++) {
      largest = Math.max(largest, logits[id]);
      if (best.length === this.expected && logits[id] <= logits[best.at(-1)]) continue;
      const place = best.findIndex((other) => logits[id] > logits[other]);
      best.splice(place < 0 ? best.length : place, 0, id);
      best.length = Math.min(best.length, this.expected);
    }
    for (const logit of logits) total += Math.exp(logit - largest);
    const whole = largest + Math.log(total);
    const bits = (whole - logits[next]) / Math.LN2;
    Object.assign(step, { next, bits, best: best.map((id) => [id, Math.exp(logits[id] - whole)]) });
  }
}

// --- from text to tokens, as spanlm/data/tokenizer.py and subwords.py have it ---

const WRITTEN = /[^ \t\n\r\v\f]+/g;
const LETTER = String.raw`[\p{L}\p{N}\p{M}_\u200c\u200d]`;
const CUT = new RegExp(String.raw`<unk>|(?:[\p{L}\p{Nl}\p{No}]\.){2,}(?!${LETTER})|${LETTER}+(?:['’.,\-]${LETTER}+)*|[^ \t\n\r\v\f]`, "gu");
const OTHER_SPACE = /[\u0085\u00a0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000]/g;
const UNSEEN = /[\u00ad\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g;

function cutWord(word, rule) {
  if (rule === "whitespace") return [word];
  const straight = rule === "straight-words" ? word.replaceAll("’", "'").replace(OTHER_SPACE, " ").replace(UNSEEN, "") : word;
  return (straight.trim() ? straight : word).toLowerCase().match(CUT) ?? [];
}

// a character, or its bytes, whose tokens follow <eos> and <unk>
function cutLetter(letter, rule, words, known) {
  if (letter === UNK) return [letter];
  if (rule === "characters" && letter === " ") return ["▁"];
  if (rule === "characters" && letter !== "▁" && known.has(letter)) return [letter];
  return Array.from(new TextEncoder().encode(letter), (byte) => words[2 + byte]);
}

const inLetters = (rule) => rule === "characters" || rule === "bytes";

// what a line is cut into: { start: its place in the line, tokens }
function cutLine(line, { rule, words }, known) {
  const letters = inLetters(rule);
  return Array.from(line.matchAll(letters ? /<unk>|./gsu : WRITTEN), ({ 0: text, index }) => (
    { start: index, tokens: letters ? cutLetter(text, rule, words, known) : cutWord(text, rule) }));
}
