// Column j of weights[t] is lag window - 1 - j + nearest.
(() => {
  const { window: size, nearest, tokens, weights, held, bits, expected, mean, darkest } = record;
  const NAMED = 3; // sources named in words

  const lagOf = (j) => size - 1 - j + nearest;
  const lagsOf = (t) => weights[t]
    .map((weight, j) => ({ weight: weight / 1000, lag: lagOf(j), source: t - lagOf(j) }))
    .filter(({ lag }) => lag - nearest < held[t]);

  const seen = (t) => lagsOf(t).map(({ weight, source }) => (
    { from: source, to: source, weight, label: weight >= 0.01 ? Math.round(100 * weight) : "" }));

  function tell(t) {
    tellCame(tokens[t], tokens[t + 1], bits[t], expected[t]);
    tellExpected(byId("expected"), expected[t], tokens[t + 1], expected[t].length ? expected[t][0][1] : 1);
    showLags(t);
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
    return `After ${spell(tokens[t])} came ${spell(tokens[t + 1])}, ${inBits(bits[t])}.` +
      (best.weight ? ` It looked most at ${inWords(best)}.` : "");
  }

  function opening() {
    // the sharpest look back of the opening lines, so that the page explains itself before it is touched
    const full = size - 1 + nearest;
    let best = Math.min(full, bits.length - 1);
    for (let t = best; t < Math.min(bits.length, full + 80); t++) {
      if (Math.max(...weights[t]) > Math.max(...weights[best])) best = t;
    }
    return best;
  }

  byId("darkest").textContent = (weights.flat().some((weight) => weight > 1000 * darkest) ? "≥ " : "") + percent(darkest);
  if (!mean) byId("mean-key").hidden = true;
  readText({ seen, darkest, tint: (t) => Math.min(bits[t] / MOST_BITS, 1), tell, speak, opening });
})();
