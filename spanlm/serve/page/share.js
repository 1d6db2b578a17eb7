"use strict";
// Share: the address, the page as a file, the rows, and how a program asks. All take what the pane that was seen last shows.

app.panes.share = (() => {
  function show() {
    const { model } = app, base = { run: model.id, text: app.text, state: app.state, attention: app.lesion || null, cache: app.cached };
    // of each side that is seen its letter, if there are several, and what it asks for
    const sides = (app.panes[app.seen].shared?.() ?? [{}]).map(({ body = {}, ...named }) => ({ ...named, body: { ...base, ...body } }));
    const { text } = sides[0].body, has = Boolean(text.trim());
    const link = make("input", "address");
    link.readOnly = true;
    link.value = location.origin + location.pathname + addressOf({ ...app.settings, text, pane: app.seen });
    link.setAttribute("aria-label", "The address");
    link.addEventListener("focus", () => link.select());
    const said = make("p", "note");
    said.setAttribute("role", "status");
    const tell = (text) => { said.textContent = text; };
    const act = (label, job) => {
      const one = button(label, () => job().catch((error) => tell(troubleIn(error))));
      one.disabled = !has && label !== "Copy the address";
      return one;
    };
    const fileOf = ({ body: { run, attention, cache } }) => [nameOf(app.models.find(({ id }) => id === run)), attention, cache && "cache"].filter(Boolean).join("-").replace(/[^\w.-]/g, "-");
    const asked = sides.map(({ body }) => Object.fromEntries(Object.entries(body).filter(([, value]) => value)));
    const long = text.length > LONGEST_ADDRESS;
    byId("pane-share").replaceChildren(
      make("h2", "", "This view, by its address"),
      make("p", "", "It holds the text, the open word and the settings", long ? ", but this text is too long for it: save the page instead." : ". Who opens it has to reach this server", token ? ", and to have the token." : "."),
      link, make("div", "buttons", act("Copy the address", () => copy(link, tell))),
      make("h2", "", "As a file"),
      make("p", "", "A page that needs no server and no network, or the surprisal of every word as a table (CSV), as ", make("code", "", "spanlm score"), " writes it."),
      make("div", "buttons",
        ...sides.map((one) => act(one.side ? `Save ${one.side} as page` : "Save as page", async () => save([await fetched("page", one.body, "text/html")], `${fileOf(one)}.html`, tell))),
        act("Save rows", async () => save(await rowsOf(sides), `${sides.map(fileOf).join("-and-")}.csv`, tell))),
      said,
      make("h2", "", "From a program"),
      make("p", "", "All that this page does, a program can ask for as JSON. ", ...schemaLink()),
      code("In a terminal", asked.map((body) => `curl -s ${location.origin}/api/score -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`).join("\n")),
      code("In R", `library(httr)\n${asked.map((body) => `r <- POST("${location.origin}/api/score", accept("text/csv"), encode = "json",\n          body = list(${Object.entries(body).map(([name, value]) => `${name} = ${value === true ? "TRUE" : JSON.stringify(value)}`).join(", ")}))\nread.csv(text = content(r, "text", encoding = "UTF-8"))`).join("\n")}`),
    );
  }

  function schemaLink() {
    const link = make("a", "", "What it can ask");
    link.href = "schema";
    return [link, " lists it all", token ? "; with the token, as Authorization: Bearer …" : "", "."];
  }

  function code(title, text) {
    const lines = make("pre", "", make("code", "", text));
    lines.tabIndex = 0;
    return make("div", "", make("h3", "", title), lines);
  }

  async function copy(link, tell) {
    link.select();
    if (navigator.clipboard) await navigator.clipboard.writeText(link.value);
    else document.execCommand("copy"); // an address that is not https, as of a class's server
    tell("Copied.");
  }

  const fetched = async (path, body, accept) => (await ask(path, body, { accept })).text();

  // the rows of `spanlm score`; of several sides under each other, after columns that say whose they are
  async function rowsOf(sides) {
    const tables = await Promise.all(sides.map(({ body }) => fetched("score", body, "text/csv")));
    if (tables.length === 1) return tables;
    return tables.flatMap((table, i) => table.trimEnd().split("\n").slice(i ? 1 : 0).map((line, n) => (
      `${i || n ? `${sides[i].side},"${sides[i].title.replaceAll('"', '""')}"` : "side,run"},${line}\n`)));
  }

  function save(parts, name, tell) {
    const link = make("a", "");
    link.href = URL.createObjectURL(new Blob(parts));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    tell(`Saved ${name}.`);
  }

  return { show, changed: show };
})();
