"use strict";
// Read: what the model makes of a text while it is typed.

app.panes.read = (() => {
  const newest = new Newest();
  let reader = null, words = [];

  const wantsBefore = () => app.lesion !== "" || app.cached || app.state !== app.model.state;

  function show() {
    if (!reader) {
      reader = new Reader(byId("reader"), { tint: app.settings.tint, onSelect: (t, pinned) => set({ pos: pinned ? String(t) : "" }) });
      reader.tints.addEventListener("change", () => set({ tint: reader.tintName || "nothing" }));
    }
    reader.tintName = app.settings.tint; // one that a view lacks is none
    laySettings();
    return changed();
  }

  function laySettings() {
    const { model } = app;
    byId("state").replaceChildren(...model.states.map((state) => option(state, STATES[state], state === app.state)));
    byId("lesion").replaceChildren(...lesionOptions(model, app.lesion));
    byId("lesion").parentElement.hidden = !model.lesions.length;
    byId("state").parentElement.hidden = model.states.length < 2;
    byId("cache").checked = app.cached;
    byId("cache").parentElement.hidden = !model.caches;
  }

  // places count letters, and in a script some letters count as two
  const caret = () => [...app.text.slice(0, byId("text").selectionStart)].length;

  async function changed({ typed = false } = {}) {
    byId("pane-read").classList.toggle("empty", !app.text.trim());
    if (!app.text.trim()) {
      newest.cancel();
      tellTrouble(null);
      byId("status").textContent = "Write something, or choose an example.";
      byId("changed").hidden = true;
      return;
    }
    const base = { run: app.model.id, text: app.text };
    const asTrained = { ...base, state: app.model.state };
    const slow = setTimeout(() => { byId("status").textContent = "Reading …"; }, 500);
    try {
      const answers = await newest.ask((signal) => Promise.all([
        post("read", { ...base, state: app.state, attention: app.lesion || null, cache: app.cached }, signal),
        wantsBefore() ? post("read", asTrained, signal) : null,
      ]));
      if (!answers) return;
      tellTrouble(null);
      paint(...answers, typed);
    } catch (error) {
      byId("status").textContent = "";
      byId("pane-read").classList.toggle("empty", !reader.content);
      tellTrouble(error);
    } finally {
      clearTimeout(slow);
    }
  }

  // where each line stands alone the blank lines at the beginning are left out: the ends are one
  function bitsBefore(bits, count) {
    return bits.length < count ? [...Array(count - bits.length).fill(null), ...bits] : bits.slice(bits.length - count);
  }

  function paint(answer, before, typed) {
    const { record } = answer.items[0];
    ({ words } = answer.items[0]);
    Object.assign(record, { copies: app.model.gates && !record.spans, lesion: app.lesion });
    const pinned = !typed && /^\d+$/.test(app.settings.pos);
    const position = pinned ? Number(app.settings.pos) : typed ? positionAt(caret(), words) : null;
    reader.fill(record, { position, pinned, before: before && bitsBefore(before.items[0].record.bits, record.bits.length) });
    tellCounts(answer);
    tellChange(answer, before, record);
  }

  function tellChange(answer, before, record) {
    byId("changed").hidden = !before;
    if (!before) return;
    const gains = before.items[0].words.map((word, i) => ({ word: word.text, bits: (answer.items[0].words[i]?.surprisal ?? NaN) - word.surprisal }))
      .filter(({ bits }) => Number.isFinite(bits)).sort((a, b) => a.bits - b.bits);
    const what = [app.lesion && `memory ${lesionName(app.lesion)}`, app.cached && "a cache", app.state !== app.model.state && `context: ${STATES[app.state]}`];
    const mean = answer.bits - before.bits;
    const line = [make("b", "", `With ${what.filter(Boolean).join(", ")}`), ` it is ${Math.abs(mean) < 0.005 ? "as surprised" : `${Math.abs(mean).toFixed(2)} bits a token ${mean > 0 ? "more" : "less"} surprised than`} as trained.`];
    const named = (one) => ` “${one.word}” (${signedBits(one.bits)})`;
    if (gains.length && last(gains).bits > 0.05) line.push(" Most lost at", named(last(gains)), ".");
    if (gains.length && gains[0].bits < -0.05) line.push(" Most gained at", named(gains[0]), ".");
    byId("changed").replaceChildren(...line);
  }

  function followCaret() {
    if (!reader?.content || reader.pinned || app.settings.pane !== "read") return;
    const t = positionAt(caret(), words);
    if (t !== null && t <= reader.last && t !== reader.current) reader.show(t);
  }

  byId("text").addEventListener("keyup", followCaret);
  byId("text").addEventListener("click", followCaret);
  byId("state").addEventListener("change", (event) => {
    set({ state: event.target.value === app.model.state ? "" : event.target.value });
    changed();
  });
  byId("lesion").addEventListener("change", (event) => { set({ lesion: event.target.value }); changed(); });
  byId("cache").addEventListener("change", (event) => { set({ cache: event.target.checked ? "1" : "" }); changed(); });

  return { show, changed, hide: () => newest.cancel(), release: () => reader?.release(), get reader() { return reader; } };
})();
