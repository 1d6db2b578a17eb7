"use strict";
// The start: wait for the models, then open what the address says.

let pause = 0;

// put a text in, with settings, and show the pane they name
async function writeText(text, changes = {}) {
  const { run } = changes, other = run && run !== app.settings.run; // in Compare it is side A
  set({ at: "", ...(other ? { with: app.settings.with.replace(/^[^,]+/, run) } : {}), ...changes, text });
  byId("text").value = text;
  byId("look").hidden = true;
  return showPane(app.settings.pane);
}

async function openExample(model, example) {
  await writeText(example.text, { run: model.id, pane: app.settings.pane === "learn" ? "read" : app.settings.pane, pos: "" });
  tellLook(example);
}

async function showPane(name) {
  app.panes[app.shown]?.hide?.();
  app.shown = name;
  if (name !== "share") app.seen = name;
  set({ pane: name });
  for (const pane of PANES) {
    const chosen = pane === name, tab = byId(`tab-${pane}`);
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(`pane-${pane}`).hidden = !chosen;
  }
  byId("about").hidden = name === "compare" || name === "learn"; // these say it of every run
  byId("run").parentElement.hidden = name === "learn";
  tellTrouble(null);
  byId("writing").hidden = name === "learn" || name === "share";
  byId("text-name").textContent = name === "generate" ? "How it begins" : "Your text";
  layRun();
  growTextarea();
  await app.panes[name].show();
}

function layRun() {
  const { model } = app;
  byId("run").replaceChildren(...app.models.map((each) => option(each.id, nameOf(each), each === model)));
  byId("about").textContent = [model.description, model.corpus && `trained on ${model.corpus}`,
    perplexityOf(model) && `perplexity ${perplexityOf(model)}`, model.paper].filter(Boolean).join("; ");
  layExamples(model.examples, app.text);
}

function listen() {
  byId("text").addEventListener("input", () => {
    set({ text: byId("text").value, pos: "", at: "" });
    byId("look").hidden = true;
    byId("examples").value = "";
    growTextarea();
    clearTimeout(pause);
    pause = setTimeout(() => app.panes[app.settings.pane].changed?.({ typed: true }), PAUSE);
  });
  byId("run").addEventListener("change", (event) => {
    const run = event.target.value; // in Compare it is side A
    set({ run, with: app.settings.with.replace(/^[^,]+/, run) });
    showPane(app.settings.pane);
  });
  byId("examples").addEventListener("change", (event) => {
    const example = app.model.examples[event.target.value];
    if (example) openExample(app.model, example);
  });
  for (const [i, pane] of PANES.entries()) {
    const tab = byId(`tab-${pane}`);
    tab.addEventListener("click", () => showPane(pane));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const to = step ? (i + step + PANES.length) % PANES.length : { Home: 0, End: PANES.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      byId(`tab-${PANES[to]}`).focus();
      showPane(PANES[to]);
    });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") app.panes[app.settings.pane].release?.(); });
  for (const place of document.querySelectorAll("[data-say]")) {
    place.replaceChildren(term(place.dataset.say, place.textContent));
  }
  // the link that skips to the text has a hash, too, which is no address of ours
  addEventListener("hashchange", () => (location.hash.includes("=") ? openAddress() : writeAddress()));
}

async function openAddress() {
  readAddress();
  const { model } = app;
  const text = app.settings.text || model.examples[0]?.text || "";
  byId("text").value = text;
  app.settings.text = text;
  app.settings.run = model.id;
  await showPane(app.settings.pane);
}

async function start() {
  const waiting = byId("waiting");
  for (;;) {
    try {
      const answer = await (await ask("models")).json();
      if (answer.ready) {
        app.models = answer.models;
        break;
      }
      waiting.textContent = answer.progress ?? "The demo is being trained.";
    } catch (error) {
      waiting.textContent = troubleIn(error);
    }
    await new Promise((done) => setTimeout(done, 500));
  }
  waiting.hidden = true;
  for (const element of document.querySelectorAll(".run, #tour, .tabs")) element.hidden = false;
  listen();
  await openAddress();
}

start();
