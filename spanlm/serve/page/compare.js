"use strict";
// Compare: runs, or one run with and without a part of its memory, side by side on one text.

app.panes.compare = (() => {
  const MOST = 4, NAMED_WORDS = 5;
  const newest = new Newest();
  let sides = []; // { run, lesion }
  let readers = [], answers = [];

  function show() {
    sides = sidesOf(app.settings.with);
    keepRun();
    laySides();
    return layColumns();
  }

  // side A is the run of the other panes
  function keepRun() {
    if (sides[0].run === app.settings.run) return;
    set({ run: sides[0].run });
    layRun();
  }

  // "2,none" after "1": each side is a run and, after a colon, a lesion
  function sidesOf(written) {
    const found = written.split(",").filter(Boolean).map((side) => {
      const [run, lesion = ""] = side.split(":");
      return { run, lesion };
    }).filter((side) => modelOf(side)).map(({ run, lesion }) => ({ run, lesion: modelOf({ run }).lesions.includes(lesion) ? lesion : "" }));
    if (found.length > 1) return found.slice(0, MOST);
    const { model } = app, other = app.models.find((each) => each.id !== model.id);
    return [{ run: model.id, lesion: "" }, other ? { run: other.id, lesion: "" } : { run: model.id, lesion: model.lesions.includes("none") ? "none" : "" }];
  }

  const modelOf = ({ run }) => app.models.find((model) => model.id === run);
  const stateOf = (side) => (modelOf(side).states.includes(app.settings.state) ? app.settings.state : modelOf(side).state);
  const titleOf = (side) => nameOf(modelOf(side)) + (side.lesion ? `, memory ${lesionName(side.lesion)}` : "") +
    (stateOf(side) === modelOf(side).state ? "" : `, context ${STATES[stateOf(side)]}`);

  function keep() {
    set({ with: sides.map(({ run, lesion }) => (lesion ? `${run}:${lesion}` : run)).join(",") });
    keepRun();
    layColumns();
  }

  // one side more or less; the keyboard goes on at side i
  function regroup(i) {
    laySides();
    byId("sides").children[i].querySelector("select").focus();
    keep();
  }

  function laySides() {
    byId("sides").replaceChildren(...sides.map(laySide), ...(sides.length < MOST
      ? [button("Add one", () => regroup(sides.push({ ...sides[0] }) - 1))] : []));
  }

  function layColumns() {
    byId("columns").replaceChildren();
    byId("differences").replaceChildren();
    readers = sides.map((side, i) => {
      const root = make("div"), head = make("h2", "side", `${"ABCD"[i]}: ${titleOf(side)}`);
      byId("columns").append(make("article", "", head, root));
      return new Reader(root, { onSelect: (t, pinned) => follow(i, t, pinned), onPoint: (t) => follow(i, t, false) });
    });
    return changed();
  }

  function laySide(side, i) {
    const runs = make("select"), lesions = make("select"), named = make("span", "", "memory");
    const layLesions = () => {
      lesions.replaceChildren(...lesionOptions(modelOf(sides[i]), sides[i].lesion));
      lesions.hidden = named.hidden = !modelOf(sides[i]).lesions.length;
    };
    runs.append(...app.models.map((model) => option(model.id, nameOf(model), model.id === side.run)));
    layLesions();
    runs.setAttribute("aria-label", `run ${"ABCD"[i]}`);
    lesions.setAttribute("aria-label", `memory of ${"ABCD"[i]}`);
    runs.addEventListener("change", () => { sides[i] = { run: runs.value, lesion: "" }; layLesions(); keep(); });
    lesions.addEventListener("change", () => { sides[i].lesion = lesions.value; keep(); });
    const parts = make("div", "choice", make("b", "", "ABCD"[i]), runs, named, lesions);
    if (sides.length > 2) {
      const away = button("×", () => { sides.splice(i, 1); regroup(Math.max(i - 1, 0)); }, "bare away");
      away.setAttribute("aria-label", `take ${"ABCD"[i]} away`);
      parts.append(away);
    }
    return parts;
  }

  async function changed() {
    const empty = !app.text.trim();
    byId("columns").hidden = empty;
    if (empty) {
      newest.cancel();
      byId("differences").replaceChildren(make("p", "note", "Write something, or choose an example."));
      return;
    }
    try {
      const found = await newest.ask((signal) => Promise.all(sides.map((side) => post("read", {
        run: side.run, text: app.text, attention: side.lesion || null, state: stateOf(side) }, signal))));
      if (!found) return;
      answers = found;
      readers.forEach((reader, i) => reader.fill({ ...answers[i].items[0].record, lesion: sides[i].lesion }));
      layDifferences();
      followFirst();
    } catch (error) {
      byId("differences").replaceChildren(make("p", "note", troubleIn(error)));
    }
  }

  // bits of each written word: of A minus those of another; more than 0 where the other was surprised less
  function differenceTo(i) {
    const others = answers[i].items[0].words;
    return answers[0].items[0].words.map(({ surprisal }, w) => {
      const other = others[w]?.surprisal;
      return surprisal === null || other === null || other === undefined ? null : surprisal - other;
    });
  }

  function layDifferences() {
    const written = answers[0].items[0].words;
    byId("differences").replaceChildren(...sides.slice(1).map((side, k) => {
      const i = k + 1, gains = differenceTo(i), letter = "ABCD"[i];
      const known = gains.filter((gain) => gain !== null), sum = known.reduce((a, b) => a + b, 0);
      const mean = sum / Math.max(known.length, 1), better = mean >= 0 ? letter : "A";
      const verdict = Math.abs(mean) < 0.005 ? "Both are surprised alike" : `${better} is surprised less, by ${Math.abs(mean).toFixed(2)} bits a word`;
      const wins = known.filter((gain) => gain > 0).length;
      const order = gains.map((gain, w) => ({ gain, w })).filter(({ gain }) => gain !== null && Math.abs(gain) >= 0.1).sort((a, b) => b.gain - a.gain);
      return make("figure", "difference",
        make("figcaption", "", make("b", "", `A and ${letter}. `), `${verdict}: ${letter} gains at ${wins} of ${known.length} words.`),
        divergingBars(gains, written, letter),
        make("div", "two", gainList(`${letter} gains most at`, order.slice(0, NAMED_WORDS).filter(({ gain }) => gain > 0), written),
          gainList("A gains most at", order.reverse().slice(0, NAMED_WORDS).filter(({ gain }) => gain < 0), written)));
    }));
  }

  function gainList(title, gains, written) {
    const list = make("ol", "gains");
    list.append(...gains.map(({ gain, w }) => make("li", "", button(written[w].text, () => choose(w), "bare link"), ` ${Math.abs(gain).toFixed(1)} bits`)));
    if (!gains.length) list.append(make("li", "none", "no word"));
    return make("div", "", make("p", "note", title), list);
  }

  function divergingBars(gains, written, letter) {
    const most = Math.max(1, ...gains.filter((gain) => gain !== null).map(Math.abs));
    const svg = draw("svg", { class: "bars diverging", viewBox: `0 0 ${gains.length} 100`, preserveAspectRatio: "none", "aria-hidden": "true" });
    const path = (keeps) => gains.map((gain, w) => (gain !== null && keeps(gain) ? `M${w + 0.5} 50V${(50 - 48 * gain / most).toFixed(1)}` : "")).join("");
    svg.append(draw("path", { class: "theirs", d: path((gain) => gain > 0) }), draw("path", { class: "ours", d: path((gain) => gain < 0) }));
    const plot = make("div", "plot", svg, make("span", "up", `${letter} gains`), make("span", "down", "A gains"));
    plot.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      choose(Math.min(Math.floor((event.clientX - box.left) / box.width * gains.length), gains.length - 1));
    });
    return plot;
  }

  const positionOf = (i, word) => Math.max(answers[i].items[0].words[word].tokens[0] - 1, 0);
  const wordAt = (i, t) => answers[i].items[0].words.findIndex(({ tokens }) => tokens.includes(t + 1));

  function choose(word) {
    readers.forEach((reader, i) => { reader.pinned = true; reader.show(positionOf(i, word)); });
  }

  // the others show the same word
  function follow(i, t, pinned) {
    const word = wordAt(i, t);
    readers.forEach((reader, other) => {
      if (other === i || !reader.content) return;
      reader.pinned = pinned;
      if (word >= 0 && answers[other].items[0].words[word]) reader.show(positionOf(other, word));
    });
  }

  function followFirst() { if (readers[0]?.current !== null) follow(0, readers[0].current, false); }

  return { show, changed, release: () => readers[0]?.release() };
})();
