"use strict";
// What all panes share: the models, the text, the settings and their place in the address, and requests.

const PANES = ["read", "generate", "compare", "learn", "share"];
const PAUSE = 40; // milliseconds without a key before a text is sent
const LONGEST_ADDRESS = 8000; // characters; of a longer text the address says nothing
const DEFAULTS = { pane: "read", run: "1", text: "", state: "", lesion: "", cache: "", pos: "", at: "", tint: "surprisal", t: "1", k: "", p: "1", with: "" };

const app = {
  models: [],
  settings: { ...DEFAULTS },
  seen: DEFAULTS.pane, // the pane that was in sight last, Share aside
  panes: {}, // name → { show(): the pane came into sight, changed(): text, run or a setting is another }
  get model() { return this.models.find((model) => model.id === this.settings.run) ?? this.models[0]; },
  get state() { return this.model.states.includes(this.settings.state) ? this.settings.state : this.model.state; },
  get lesion() { return this.model.lesions.includes(this.settings.lesion) ? this.settings.lesion : ""; },
  get cached() { return Boolean(this.settings.cache) && this.model.caches; },
  get text() { return this.settings.text; },
};

const token = (() => {
  // kept for this tab and taken out of the address, which people pass on
  const given = new URLSearchParams(location.search).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + location.hash);
  }
  return given ?? sessionStorage.getItem("token");
})();

// the end of a run's folder that no other run has; of a seed its family, too
function nameOf(model) {
  const parts = ({ name }) => name.replace(/\/+$/, "").split("/"), end = (each, count) => parts(each).slice(-count).join("/");
  let count = /^seed-\d+$/.test(end(model, 1)) ? 2 : 1;
  while (count < parts(model).length && app.models.some((other) => other !== model && end(other, count) === end(model, count))) count++;
  return end(model, count);
}

// --- requests ---

const heads = (more = {}) => ({ ...more, ...(token ? { authorization: `Bearer ${token}` } : {}) });

async function checked(response) {
  if (response.ok) return response;
  let error = `the server said ${response.status}`;
  try { error = (await response.json()).error ?? error; } catch { /* no JSON: the number says it */ }
  throw new Error(error);
}

function unanswered(error) {
  throw error instanceof TypeError ? new Error("the server does not answer: is spanlm serve still running?") : error;
}

async function ask(path, body, { signal, accept } = {}) {
  const headers = heads({ "content-type": "application/json", ...(accept ? { accept } : {}) });
  for (let attempt = 0; ; attempt++) {
    const response = await fetch(`api/${path}`, body === undefined
      ? { headers: heads(), signal }
      : { method: "POST", headers, body: JSON.stringify(body), signal }).catch(unanswered);
    if (response.status === 429 && attempt < 4) { // others are before us in the queue
      await new Promise((done) => setTimeout(done, 150 * 2 ** attempt));
      continue;
    }
    return checked(response);
  }
}

const post = async (path, body, signal) => (await ask(path, body, { signal })).json();

// only the answer to the newest question counts: of others, undefined at once
class Newest {
  cancel() { this.controller?.abort(); }

  async ask(question) {
    this.cancel();
    const { signal } = this.controller = new AbortController();
    const cancelled = new Promise((done) => signal.addEventListener("abort", () => done()));
    try {
      const answer = await Promise.race([question(signal), cancelled]);
      return signal.aborted ? undefined : answer;
    } catch (error) {
      if (signal.aborted) return undefined;
      throw error;
    }
  }
}

// --- settings and the address ---

function readAddress() {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  app.settings = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) if (name in found) app.settings[name] = found[name];
  if (!PANES.includes(app.settings.pane)) app.settings.pane = DEFAULTS.pane;
}

function addressOf(settings) {
  const entries = Object.entries(settings).filter(([name, value]) => value !== DEFAULTS[name] && value !== "");
  const kept = entries.filter(([name, value]) => name !== "text" || value.length <= LONGEST_ADDRESS);
  return kept.length ? `#${new URLSearchParams(kept)}` : "";
}

const writeAddress = () => writeHash(addressOf(app.settings));

function set(changes) {
  Object.assign(app.settings, changes);
  writeAddress();
}

// a text, run or setting is another: the pane in sight asks anew
function changed() { app.panes[app.settings.pane].changed?.(); }

// --- small parts ---

// null where it was never measured, or is no number
const perplexityOf = ({ perplexity }) => (Number.isFinite(perplexity?.value) ? `${perplexity.value.toFixed(1)} on ${perplexity.split}` : null);

const STATES = { line: "its line", document: "its document", carry: "all that is read" };

function lesionName(how) {
  if (!how) return "as trained";
  if (how === "uniform") return "equal weights";
  if (how === "none") return "off";
  const slots = how.split("=")[1];
  return slots === "1" ? "only the nearest" : `only the nearest ${slots}`;
}

const lesionOptions = (model, chosen) => ["", ...model.lesions].map((how) => option(how, lesionName(how), how === chosen));

function signedBits(bits) { return `${bits < 0 ? "−" : "+"}${Math.abs(bits).toFixed(1)}`; }
