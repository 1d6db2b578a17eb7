"use strict";
// Generate: word by word, with the candidates of the next one moved by sliders before any is drawn.

app.panes.generate = (() => {
  const KS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, null];
  const TEMPERATURES = Array.from({ length: 40 }, (_, i) => Math.round(5 * (i + 1)) / 100);
  const SHOWN = 12;
  const newest = new Newest();
  let words = []; // that were generated: { word, log_probability, candidates, taken }
  let past = []; // what undo goes back to
  let next = null; // the answer of /api/next for the text as it stands; null until it is there
  let known = ""; // the text, run and lesion that the words go on from
  let writing = null; // the controller of a stream
  let asked = null; // the number of the word whose reason is shown

  const tokenText = (word) => (word === "<eos>" ? "¶" : word);
  // a line end begins a new line; spaces are tokens of characters and bytes alone
  const given = () => (["characters", "bytes"].includes(app.model.tokenizer) ? app.text : app.text.replace(/[^\S\n]+$/, ""));
  // what was drawn is sent as it was drawn: as text it might be cut otherwise
  const goesOn = () => ({ run: app.model.id, prompt: given(), words: words.map(({ word }) => word), attention: app.lesion || null });
  const context = (count = words.length) => words.slice(0, count).reduce(
    // tokens below the word bring their own spaces
    (text, { word, text: typed }) => (typed !== undefined ? text + typed : word === "<eos>" ? `${text}\n` : text === "" || text.endsWith("\n") ? text + word : `${text} ${word}`), given());
  // an address may name what no slider has: the nearest stop stands for it
  const stopNear = (value, least, most, otherwise) => (
    value === "" || Number.isNaN(Number(value)) ? otherwise : Math.round(20 * Math.min(Math.max(Number(value), least), most)) / 20);
  const knobs = () => {
    const top_k = Number(app.settings.k), top_p = stopNear(app.settings.p, 0.05, 1, 1);
    return { temperature: stopNear(app.settings.t, 0, 2, 1), top_k: KS.includes(top_k) ? top_k : null, top_p: top_p < 1 ? top_p : null };
  };

  // p'(w) ∝ p(w)^{1/T} over the k most probable words, then of these the fewest that hold top_p of their probability
  function reshape({ candidates, tails }, { temperature, top_k, top_p }) {
    if (temperature === 0) return { shares: candidates.map((_, i) => (i ? 0 : 1)), others: 0 };
    const scaled = candidates.map(({ log_probability: value }) => value / temperature);
    const tail = tails[TEMPERATURES.findIndex((each) => Math.abs(each - temperature) < 1e-9)] ?? -Infinity;
    const most = Math.max(scaled[0], tail);
    const total = most + Math.log(scaled.reduce((sum, value) => sum + Math.exp(value - most), Math.exp(tail - most)));
    const all = scaled.map((value) => Math.exp(value - total));
    const held = top_k === null ? 1 : all.slice(0, top_k).reduce((sum, share) => sum + share, 0);
    let before = 0, kept = 0;
    const shares = all.map((share, i) => {
      const stays = (top_k === null || i < top_k) && (top_p === null || before < top_p * held);
      before += share;
      if (stays) kept += share;
      return stays ? share : 0;
    });
    const rest = top_k === null && (top_p === null || before < top_p) ? Math.exp(tail - total) : 0;
    const beyond = top_p === null ? rest : Math.min(rest, Math.max(top_p - before, 0));
    return { shares: shares.map((share) => share / (kept + beyond)), others: beyond / (kept + beyond) };
  }

  const origin = () => JSON.stringify([app.model.id, app.text, app.lesion]);

  // what was written stays, as long as it goes on from the same
  function show() { return origin() === known ? refresh() : changed(); }

  async function changed() {
    stop();
    known = origin();
    words = [];
    past = [];
    asked = null;
    await refresh();
  }

  async function refresh() {
    layStory();
    wait();
    byId("why").hidden = asked === null;
    try {
      const answer = await newest.ask((signal) => post("next",
        { ...goesOn(), count: 1000, temperatures: TEMPERATURES }, signal));
      if (!answer) return;
      next = answer;
      byId("candidates").removeAttribute("aria-busy");
      tellTrouble(null);
      layCandidates();
    } catch (error) {
      byId("candidates").removeAttribute("aria-busy");
      byId("candidates").replaceChildren();
      tellTrouble(error);
    }
  }

  // the candidates in sight are those of a text that is past
  function wait() {
    next = null;
    byId("candidates").setAttribute("aria-busy", "true");
  }

  function layStory() {
    const start = make("span", "given", given() || "¶");
    const line = make("p", "", start);
    line.dir = "auto";
    words.forEach(({ word, text }, i) => {
      const token = button(tokenText(text?.trim() || word), () => explain(i), `bare made${i === asked ? " target" : ""}`);
      token.title = "why this word?";
      const spaced = text === undefined ? !hugsLeft(word) && !hugsRight(words[i - 1]?.word ?? "") : /^\s/.test(text);
      if (spaced) line.append(" ");
      line.append(token);
      if (word === "<eos>") line.append(make("br"));
    });
    byId("story").replaceChildren(line);
    byId("undo").disabled = !past.length;
    byId("clear").disabled = byId("keep").disabled = !words.length;
  }

  function laySliders() {
    const { temperature, top_k, top_p } = knobs();
    byId("temperature").value = temperature;
    byId("top-k").value = KS.indexOf(top_k);
    byId("top-p").value = top_p ?? 1;
    const said = { "temperature": temperature.toFixed(2), "top-k": top_k === null ? "all words" : `${top_k} word${top_k > 1 ? "s" : ""}`, "top-p": top_p === null ? "all" : top_p.toFixed(2) };
    for (const [name, value] of Object.entries(said)) {
      byId(`${name}-value`).textContent = value;
      byId(name).setAttribute("aria-valuetext", value);
    }
  }

  function layCandidates() {
    laySliders();
    byId("next-name").textContent = `The next word${app.lesion ? `, memory ${lesionName(app.lesion)}` : ""}`;
    if (!next) return;
    const { shares, others } = reshape(next, knobs());
    fillBars(byId("candidates"), next.candidates.slice(0, SHOWN), shares, take);
    scale();
    const below = shares.slice(SHOWN).reduce((a, b) => a + b, 0) + others;
    byId("others").replaceChildren(`Click a word to take it. All others together ${percent(below)}. Thin lines: the model's own probabilities. `,
      term("<unk>"), ` (${percent(next.unk)} to the model) is never drawn.`);
  }

  // a bar a candidate; those in place already are moved, so that they glide as a slider does
  function fillBars(list, candidates, shares, act) {
    list.dataset.most = Math.max(...shares.slice(0, candidates.length), Math.exp(candidates[0]?.log_probability ?? 0));
    while (list.children.length > candidates.length) list.lastChild.remove();
    candidates.forEach(({ word, log_probability: value }, i) => {
      let item = list.children[i];
      if (!item) {
        item = make("li", "", button("", null, "bare candidate"));
        item.firstChild.append(make("span", "word"), make("span", "track", make("span", "fill"), make("span", "own")), make("span", "chance"));
        list.append(item);
      }
      const [name, track, chance] = item.firstChild.children;
      item.firstChild.onclick = () => act(i);
      item.classList.toggle("out", shares[i] === 0);
      name.textContent = tokenText(word);
      track.children[0].style.width = along("guess", shares[i]);
      track.children[1].style.left = along("guess", Math.exp(value));
      chance.textContent = percent(shares[i]);
      item.firstChild.title = "take this word";
    });
  }

  // the lists in sight have one axis
  function scale() {
    const lists = [byId("candidates"), ...(byId("why").hidden ? [] : byId("why").querySelectorAll(".candidates"))];
    byId("pane-generate").style.setProperty("--guess-end", Math.max(...lists.map((list) => list.dataset.most ?? 0)));
  }

  function remember() { past.push(words.slice()); }

  function take(i) {
    if (!next) return;
    remember();
    words.push({ ...next.candidates[i], candidates: next.candidates, taken: true });
    asked = null;
    refresh();
  }

  function stop() {
    writing?.abort();
    writing = null;
    byId("write").textContent = "Write 20 words";
  }

  async function draw(length) {
    if (writing) {
      if (length > 1) { stop(); refresh(); }
      return;
    }
    newest.cancel();
    wait();
    const before = words.length;
    let trouble = null;
    asked = null;
    const controller = writing = new AbortController();
    if (length > 1) byId("write").textContent = "Stop";
    const body = { ...goesOn(), length, ...knobs(), seed: Math.floor(Math.random() * 2 ** 31) };
    try {
      for await (const { name, data } of events(await ask("generate", body, { signal: controller.signal }))) {
        if (controller !== writing) return;
        if (name === "error") throw new Error(data.error);
        if (name !== "word") continue;
        if (words.length === before) remember();
        words.push(data);
        layStory();
        if (length > 1) last(byId("story").querySelectorAll(".made")).scrollIntoView({ block: "nearest" });
      }
    } catch (error) {
      if (controller !== writing) return;
      trouble = error;
    }
    if (controller !== writing) return;
    stop();
    await refresh();
    if (trouble) tellTrouble(trouble);
  }

  // server-sent events of an answer, as they come
  async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += value;
      const blocks = held.split("\n\n");
      held = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 1).trim()]));
        if (fields.event) yield { name: fields.event, data: JSON.parse(fields.data || "{}") };
      }
    }
  }

  async function explain(i) {
    asked = asked === i ? null : i;
    layStory();
    byId("why").hidden = asked === null;
    if (asked === null) return scale();
    const { word, candidates, taken } = words[i];
    const rank = candidates.findIndex((each) => each.word === word);
    const chance = Math.exp(words[i].log_probability);
    const place = rank === 0 ? "its first guess" : rank > 0 ? `its guess no. ${rank + 1}` : "far down its list";
    const looked = make("p", "note", "Looking where it looked …");
    const list = make("ol", "candidates");
    fillBars(list, candidates.slice(0, 6), candidates.map((each) => Math.exp(each.log_probability)), (k) => {
      stop();
      remember();
      words = [...words.slice(0, i), { ...candidates[k], candidates, taken: true }];
      asked = null;
      refresh();
    });
    byId("why").replaceChildren(make("h2", "", `Why “${tokenText(word)}”?`),
      make("p", "", `The model gave it ${percent(chance)}: ${place}. `, taken ? "You took it." : "It was drawn."),
      looked, make("p", "note", "Take another instead; what follows it goes:"), list);
    scale();
    byId("why").scrollIntoView({ block: "nearest" });
    looked.replaceChildren(...await lookedAt(i).catch((error) => [troubleIn(error)]));
  }

  async function lookedAt(i) {
    const { model } = app;
    if (!model.attends) return ["It has no memory to look into."];
    const state = model.state !== "line" && model.states.includes("carry") ? "carry" : model.state;
    const closes = words[i].word === "<eos>"; // a word behind it, since blank lines at the end are not read
    const text = closes ? `${context(i)}\n<unk>` : context(i + 1);
    const { record } = (await post("read", { run: model.id, text, state, attention: app.lesion || null })).items[0];
    const t = record.tokens.length - (closes ? 4 : 3); // the record is closed by <eos>
    const shown = (record.written ?? record.tokens).map(tokenText), view = viewOf({ content: record, shown });
    const looks = view.looks(t).sort((a, b) => b.weight - a.weight), most = looks.slice(0, 3).filter(({ weight }) => weight >= 0.01);
    const named = most.map((look) => `“${record.spans ? view.wordsOf(look) : shown[look.from]}” (${percent(look.weight)})`);
    const nothing = looks.length ? "Before it came, it gave no place 1 % or more. " : app.lesion === "none" ? "Its memory is off. " : "Its memory was still empty. ";
    return [most.length ? `Before it came, it looked most at ${named.join(", ")}. ` : nothing,
      button("See it in Read", () => { writeText(context(), { pane: "read", pos: String(t) }); }, "bare link")];
  }

  function undo() {
    stop();
    words = past.pop() ?? [];
    asked = null;
    refresh();
  }

  byId("draw").addEventListener("click", () => draw(1));
  byId("write").addEventListener("click", () => draw(20));
  byId("undo").addEventListener("click", undo);
  byId("clear").addEventListener("click", () => { stop(); remember(); words = []; asked = null; refresh(); });
  byId("keep").addEventListener("click", () => writeText(context(), { pane: "read", pos: "" }));
  byId("temperature").addEventListener("input", (event) => { set({ t: String(Number(event.target.value)) }); layCandidates(); });
  byId("top-k").addEventListener("input", (event) => { set({ k: String(KS[event.target.value] ?? "") }); layCandidates(); });
  byId("top-p").addEventListener("input", (event) => { set({ p: String(Number(event.target.value)) }); layCandidates(); });

  return { show, changed, reshape, hide: () => { stop(); newest.cancel(); }, shared: () => [{ body: { text: words.length ? context() : app.text, cache: false } }] };
})();
