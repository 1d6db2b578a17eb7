// weights[t] are in ten-thousandths, the newest span first; it ends at token newest[t], the next `span` tokens before it.
// A span that began before its context, which is first at token first[t], has only those of its tokens that are in it.
(() => {
  const { span, first, tokens, gate, newest, weights, bits, expected, darkest } = record;
  const NAMED = 6; // spans told in words

  const looksOf = (t) => weights[t].map((weight, k) => {
    const to = newest[t] - k * span;
    return { from: Math.max(first[t], to - span + 1), to, weight: weight / 10000 };
  });
  const largest = (t) => looksOf(t).sort((a, b) => b.weight - a.weight).slice(0, NAMED);
  const wordsOf = ({ from, to }) => tokens.slice(from, to + 1).map(spell).join(" ");

  const seen = (t) => looksOf(t).map((look) => ({ ...look, label: look.weight >= 0.01 ? Math.round(100 * look.weight) : "" }));

  function tell(t, words) {
    tellCame(tokens[t], tokens[t + 1], bits[t], expected.mixture[t]);
    const rows = [expected.mixture[t], expected.buffer[t], expected.encoder[t]];
    const most = Math.max(...rows.flat().map(([, chance]) => chance));
    for (const [part, guesses] of Object.entries(expected)) {
      tellExpected(byId(part), guesses[t], tokens[t + 1], most);
      if (!guesses[t].length) byId(part).append(make("li", "", "nothing: it is empty"));
    }
    tellGate(gate[t]);
    tellSpans(t, words);
  }

  function tellGate(share) {
    byId("gate").hidden = share === null;
    byId("share").style.width = `${100 * share}%`;
    byId("preferred").textContent = share === null
      ? "No gate: there is nothing in the buffer yet"
      : `λ ${share.toFixed(3)}: the ${share >= 0.5 ? "buffer" : "encoder"} is preferred`;
  }

  function tellSpans(t, words) {
    const looks = looksOf(t);
    const top = Math.max(darkest, ...looks.map(({ weight }) => weight));
    byId("spans").textContent = looks.length
      ? `It looked at ${looks.length} ${span > 1 ? `spans of ${span} words` : "words"}`
      : "It looked at nothing: no span has passed yet";
    byId("strip").hidden = !looks.length;
    byId("strip").replaceChildren(...looks.reverse().map(({ weight }) => {
      const slot = make("div", "slot");
      slot.appendChild(make("div", "now")).style.height = `${100 * weight / top}%`;
      return slot;
    }));
    const peaks = largest(t);
    byId("strip").setAttribute("aria-label", "Attention by span, the newest to the right. " + peaks.map(inWords).join(", "));
    byId("peaks").replaceChildren(...peaks.map((look) => {
      const item = make("li");
      const jump = make("button", "word", wordsOf(look));
      jump.title = `${wordsOf(look)}: show it in the text`;
      jump.addEventListener("click", () => words[look.from].scrollIntoView({ block: "center", behavior: "smooth" }));
      item.append(jump, make("span", "", percent(look.weight)));
      return item;
    }));
  }

  const inWords = (look) => `${wordsOf(look)}, ${percent(look.weight)}`;

  function speak(t) {
    const [best] = largest(t);
    return `After ${spell(tokens[t])} came ${spell(tokens[t + 1])}, ${inBits(bits[t])}.` +
      (best ? ` λ ${gate[t].toFixed(2)}. It looked most at ${inWords(best)}.` : "");
  }

  function opening() {
    // the sharpest look back of the opening lines that the gate preferred, once there is a choice
    const sharpness = (t) => gate[t] * Math.max(...weights[t]);
    let best = Math.min(4 * span, bits.length - 1);
    for (let t = best; t < Math.min(bits.length, 4 * span + 80); t++) {
      if (sharpness(t) > sharpness(best)) best = t;
    }
    return best;
  }

  byId("darkest").textContent = (weights.flat().some((weight) => weight > 10000 * darkest) ? "≥ " : "") + percent(darkest);
  readText({ seen, darkest, tint: (t) => gate[t] ?? 0, tell, speak, opening });
})();
