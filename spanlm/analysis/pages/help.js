"use strict";
// What the words of this field mean, one hover, tap or focus away.

const TERMS = {
  "surprisal": "How unexpected a word was: minus the logarithm of its probability. One bit more is half the probability: 1 bit is 50 %, 10 bits are 0.1 %.",
  "<unk>": "The vocabulary is a fixed list of words. Any other word is read as this one sign, so the model sees that a word stood there, not which.",
  "attention": "While it guesses the next word, the model weighs what it read before. The weights of a moment add up to 100 %.",
  "state": "What the encoder carries from word to word: a few hundred numbers, its whole summary of the text so far.",
  "memory": "What lets the model look back at single words or spans, beside the summary in its state.",
  "encoder": "The recurrent network that reads word by word and keeps a summary, its state.",
  "head": "The last layer: it turns what encoder and memory know into a probability for every word of the vocabulary.",
  "perplexity": "Two to the mean surprisal in bits. A model with perplexity 80 is on average as undecided as if 80 words were equally likely. Lower is better, on the same text and vocabulary.",
  "gate": "λ, how much the model trusts its buffer rather than its encoder at this word. Above one half the buffer is preferred.",
  "cache": "The last 500 words of the context, each with the state before it. Words that followed states like the present one get a share of the probability, λ = 0.15; θ = 0.3 is how much likeness counts. Nothing is trained for it.",
  "parameters": "The numbers that training sets. More can store more, and take more text to learn.",
  "vocabulary": "The list of all words a model knows. Other words become <unk>.",
  "temperature": "Divides all log-probabilities. Below 1 likely words become likelier, near 0 only the first is left; above 1 all become more alike.",
  "top-k": "Only the k most probable words may be drawn.",
  "top-p": "Only the fewest words whose probabilities add up to p may be drawn.",
  "lesion": "Part of a trained model switched off, to see what it was for. Nothing is trained again.",
  "epoch": "One pass over the training text.",
  "valid": "A part of the text that is kept out of training and measures it after each epoch.",
};

const tip = make("div", "tip");
tip.id = "tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;

function term(name, text = name) {
  const button = make("button", "term", text);
  button.type = "button";
  button.dataset.term = name;
  if (text === "?") button.setAttribute("aria-label", `What is ${name}?`);
  button.setAttribute("aria-describedby", "tip");
  return button;
}

function showTip(button) {
  const { term: name } = button.dataset;
  tip.replaceChildren(make("b", "", name), `: ${TERMS[name]}`);
  tip.hidden = false;
  const at = button.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = tip;
  const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8));
  const below = at.bottom + 8 + height < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
}

const hideTip = () => { tip.hidden = true; };

for (const [name, act] of Object.entries({ pointerover: showTip, focusin: showTip, click: showTip, pointerout: hideTip, focusout: hideTip })) {
  document.addEventListener(name, (event) => {
    const button = event.target.closest?.("[data-term]");
    if (button) act(button);
  });
}
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
addEventListener("scroll", hideTip, { passive: true });
document.body?.append(tip);
