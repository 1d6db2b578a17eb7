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
  const bodyOf = (side) => ({ run: side.run, text: app.text, attention: side.lesion || null, state: stateOf(side), cache: false });
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
      const root = make("div"), letter = "ABCD"[i], head = make("h2", "side", `${letter}: ${titleOf(side)}`);
      byId("columns").append(make("article", `side-${i}`, head, root));
      return new Reader(root, {
        side: letter, onSelect: (t, pinned) => follow(i, t, pinned), onPoint: (t) => follow(i, t, false),
      });
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
    const parts = make("div", `choice side-${i}`, make("b", "", "ABCD"[i]), runs, named, lesions);
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
      tellTrouble(null);
      byId("differences").replaceChildren(make("p", "note", "Write something, or choose an example."));
      return;
    }
    try {
      const found = await newest.ask((signal) => Promise.all(sides.map((side) => post("read", bodyOf(side), signal))));
      if (!found) return;
      tellTrouble(null);
      answers = found;
      // runs may read other words of a text: those that all have are compared
      const places = answers.map(({ items: [{ words }] }) => new Set(words.map(({ start }) => start)));
      for (const { items: [item] } of answers) item.words = item.words.filter(({ start }) => places.every((starts) => starts.has(start)));
      // what stands side by side has one axis, and one scale of blue
      const records = answers.map(({ items: [{ record }] }) => record), most = axisOf(...records.map(({ bits }) => bits));
      const darkest = Math.max(...records.filter(({ weights }) => weights).map((record) => record.darkest), 0) || 1;
      readers.forEach((reader, i) => reader.fill({ ...records[i], darkest, lesion: sides[i].lesion }, { most }));
      layDifferences();
      const open = /^\d+$/.test(app.settings.at) && answers[0].items[0].words[app.settings.at];
      if (open) choose(Number(app.settings.at)); else followFirst();
    } catch (error) {
      tellTrouble(error);
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
    const most = Math.ceil(Math.max(1, ...sides.slice(1).flatMap((_, k) => differenceTo(k + 1)).map(Math.abs)));
    byId("differences").replaceChildren(...sides.slice(1).map((side, k) => {
      const i = k + 1, gains = differenceTo(i), letter = "ABCD"[i];
      const unknown = (w) => written[w].unknown || answers[i].items[0].words[w]?.unknown;
      const meanOver = (keeps) => {
        const kept = gains.filter((gain, w) => gain !== null && keeps(w));
        return kept.reduce((a, b) => a + b, 0) / Math.max(kept.length, 1);
      };
      const known = gains.filter((gain) => gain !== null), count = written.filter((_, w) => unknown(w)).length;
      const mean = meanOver(() => true), better = mean >= 0 ? letter : "A", among = meanOver((w) => !unknown(w));
      const only = count ? ` ${count} unknown word${count > 1 ? "s" : ""} count as <unk>; without, ${Math.abs(among) < 0.005 ? "both are alike" : `${among >= 0 ? letter : "A"} is surprised less, by ${Math.abs(among).toFixed(2)}`}.` : "";
      const verdict = Math.abs(mean) < 0.005 ? "Both are surprised alike" : `${better} is surprised less, by ${Math.abs(mean).toFixed(2)} bits a word`;
      const wins = known.filter((gain) => gain > 0).length;
      const order = gains.map((gain, w) => ({ gain, w })).filter(({ gain }) => gain !== null && Math.abs(gain) >= 0.1).sort((a, b) => b.gain - a.gain);
      return make("figure", "difference",
        make("figcaption", "", make("b", "side-0", "A"), " and ", make("b", `side-${i}`, letter), `. ${verdict}: ${letter} gains at ${wins} of ${known.length} words.${only}`),
        divergingBars(gains, most, i),
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

  // of word after word, the bits that a side gains: up side i, down A
  function divergingBars(gains, most, i) {
    const svg = draw("svg", { class: "bars diverging", viewBox: `0 0 ${gains.length} 100`, preserveAspectRatio: "none", "aria-hidden": "true" });
    const path = (keeps) => gains.map((gain, w) => (gain !== null && keeps(gain) ? `M${w + 0.5} 50V${(50 - 48 * gain / most).toFixed(1)}` : "")).join("");
    svg.append(draw("path", { class: `side-${i}`, d: path((gain) => gain > 0) }), draw("path", { class: "side-0", d: path((gain) => gain < 0) }));
    const end = (side, place) => make("span", place, `${"ABCD"[side]} gains, to ${most} bit${most > 1 ? "s" : ""}`);
    const plot = make("div", "plot", svg, end(i, "up"), end(0, "down"));
    plot.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      choose(Math.min(Math.floor((event.clientX - box.left) / box.width * gains.length), gains.length - 1));
    });
    return plot;
  }

  const positionOf = (i, word) => Math.max(answers[i].items[0].words[word].tokens[0] - 1, 0);
  const wordAt = (i, t) => answers[i].items[0].words.findIndex(({ tokens }) => tokens.includes(t + 1));

  function choose(word) {
    readers.forEach((reader, i) => {
      reader.pinned = true;
      if (answers[i].items[0].words[word]) reader.show(positionOf(i, word));
    });
    set({ at: String(word) });
    scale();
  }

  function scale() {
    const axes = readers.map((reader) => reader.view.axes);
    readers.forEach((reader) => reader.scale({ guess: Math.max(...axes.map(({ guess }) => guess)), look: Math.max(...axes.map(({ look }) => look)) }));
  }

  // the others show the same word
  function follow(i, t, pinned) {
    const word = wordAt(i, t);
    readers.forEach((reader, other) => {
      if (other === i || !reader.content) return;
      reader.pinned = pinned;
      if (word >= 0 && answers[other].items[0].words[word]) reader.show(positionOf(other, word));
    });
    if (pinned || app.settings.at) set({ at: pinned && word >= 0 ? String(word) : "" });
    if (readers.every(({ content }) => content)) scale();
  }

  function followFirst() { if (readers[0]?.current !== null) follow(0, readers[0].current, false); }

  const shared = () => sides.map((side, i) => ({ body: bodyOf(side), side: "ABCD"[i], title: titleOf(side) }));

  return { show, changed, shared, get readers() { return readers; }, release: () => readers[0]?.release() };
})();
