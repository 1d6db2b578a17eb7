"use strict";
// A field to write in, its examples, and what is said of the text in it.

const byId = (id) => document.getElementById(id);
const last = (list) => list[list.length - 1];

function growTextarea() {
  const area = byId("text");
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

function layExamples(examples, text) {
  const chosen = examples.findIndex((example) => example.text === text);
  byId("examples").replaceChildren(option("", "choose …", chosen < 0), ...examples.map(({ title }, i) => option(String(i), title, i === chosen)));
  byId("examples").parentElement.hidden = !examples.length;
}

function tellLook({ look }) {
  byId("look").hidden = false;
  byId("look").replaceChildren(make("b", "", "Look for: "), look);
}

const troubleIn = ({ message }) => `${message.slice(0, 1).toUpperCase()}${message.slice(1)}`;

// what is wrong is said at the field; null: nothing is
function tellTrouble(error) {
  byId("trouble").hidden = !error;
  byId("trouble").textContent = error ? troubleIn(error) : "";
  byId("text").toggleAttribute("aria-invalid", Boolean(error));
}

// the position of the word in which the caret stands, or of that before it; a word is { start, tokens: their numbers }
function positionAt(caret, words) {
  const word = words.findLast(({ start }) => start < caret) ?? words[0];
  return word ? Math.max(last(word.tokens) - 1, 0) : null;
}

const meanOf = ({ bits, perplexity }, of) => [bits === null ? "" : `; ${bits.toFixed(2)} bits ${of}`,
  ...(perplexity !== null && perplexity < 1e6 ? [" (", term("perplexity"), ` ${perplexity.toFixed(1)})`] : [])];

// how many words a text has, and their mean surprisal
function tellCounts(counts) {
  const { words, unknown, known } = counts;
  byId("status").replaceChildren(`${words.toLocaleString("en")} word${words === 1 ? "" : "s"}${unknown ? `, ${unknown} unknown` : ""}`, ...meanOf(counts, "a token"));
  if (unknown) byId("status").append(", where an unknown word counts as ", term("<unk>"), ...(known.bits === null ? [] : meanOf(known, "among known words")));
}
