"use strict";
// Share: the address, the page as a file, the rows, and how a program asks.

app.panes.share = (() => {
  function show() {
    const { model } = app, has = Boolean(app.text.trim());
    const link = make("input", "address");
    link.readOnly = true;
    link.value = location.origin + location.pathname + addressOf({ ...app.settings, pane: app.seen });
    link.setAttribute("aria-label", "The address");
    link.addEventListener("focus", () => link.select());
    const said = make("p", "note");
    said.setAttribute("role", "status");
    const tell = (text) => { said.textContent = text; };
    const act = (text, job) => {
      const one = button(text, () => job().catch((error) => tell(troubleIn(error))));
      one.disabled = !has && text !== "Copy the address";
      return one;
    };
    const body = () => ({ run: model.id, text: app.text, state: app.state, attention: app.lesion || null });
    const long = app.text.length > LONGEST_ADDRESS;
    byId("pane-share").replaceChildren(
      make("h2", "", "This view, by its address"),
      make("p", "", "It holds the text, the open word and the settings", long ? ", but this text is too long for it: save the page instead." : ". Who opens it has to reach this server", token ? ", and to have the token." : "."),
      link, make("div", "buttons", act("Copy the address", () => copy(link, tell))),
      make("h2", "", "As a file"),
      make("p", "", "A page that needs no server and no network, or the surprisal of every word as a table (CSV), as ", make("code", "", "spanlm score"), " writes it."),
      make("div", "buttons", act("Save as page", () => save("page", { ...body(), cache: app.cached }, "text/html", `${nameOf(model).replace("/", "-")}.html`, tell)),
        act("Save rows", () => save("score", body(), "text/csv", `${nameOf(model).replace("/", "-")}.csv`, tell))),
      said,
      make("h2", "", "From a program"),
      make("p", "", "All that this page does, a program can ask for as JSON. ", ...schemaLink()),
      code("In a terminal", `curl -s ${location.origin}/api/score -H 'Content-Type: application/json' \\\n  -d '{"run": "${model.id}", "text": "the name is bound ."}'`),
      code("In R", `library(httr)\nr <- POST("${location.origin}/api/score", encode = "json",\n          body = list(run = "${model.id}", text = "the name is bound ."))\ndo.call(rbind, lapply(content(r)$rows, as.data.frame))`),
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

  async function save(path, body, accept, name, tell) {
    const response = await ask(path, body, { accept });
    const link = make("a", "");
    link.href = URL.createObjectURL(await response.blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    tell(`Saved ${name}.`);
  }

  return { show, changed: show };
})();
