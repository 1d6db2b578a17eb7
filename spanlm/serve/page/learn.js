"use strict";
// Learn: what a run is, how it learnt, example texts, and what the words mean.

app.panes.learn = (() => {
  const thousands = (value) => value.toLocaleString("en");

  function show() {
    const pane = byId("pane-learn");
    pane.replaceChildren(
      ...app.models.map(layModel),
      make("h2", "", "Learning curves"),
      curves(app.models.filter((model) => validOf(model).length)),
      make("h2", "", "Texts that show something"),
      ...layExamples(),
      make("h2", "", "What the words mean"),
      glossary());
  }

  function layModel(model) {
    const facts = make("dl", "facts");
    const fact = (name, ...value) => facts.append(make("div", "", make("dt", "", ...[name].flat()), make("dd", "", ...value)));
    fact("Corpus", model.corpus ?? "unknown");
    if (model.parameters) fact(term("parameters", "Parameters"), thousands(model.parameters));
    fact(term("vocabulary", "Vocabulary"), `${thousands(model.vocabulary_size)} words`);
    if (perplexityOf(model)) fact(term("perplexity", "Perplexity"), perplexityOf(model), make("span", "note", ` ${model.perplexity.protocol ?? ""}`));
    if (model.paper) fact("Published", model.paper);
    if (model.preset) fact("Recipe", model.preset);
    return make("article", "run-card", make("h2", "", nameOf(model)), make("p", "", model.description), ...(model.diagram ? [diagram(model.diagram)] : []), facts);
  }

  // rooms from left to right: what comes in, and what each makes of it
  function diagram(parts) {
    const rooms = [["encoder", "reads word by word"], ["memory", "looks back"], ["head", "guesses the next word"]]
      .filter(([name]) => parts[name]);
    const boxes = rooms.map(([room, does]) => {
      const { name, shape, equation } = parts[room];
      return make("li", "", make("b", "", term(room, room)), make("span", "does", does), make("span", "", name),
        make("span", "shape", shape ?? ""), make("span", "equation", ...formula(equation ?? "")));
    });
    const list = make("ol", "diagram", make("li", "end", "words"), ...boxes, make("li", "end", "probabilities"));
    list.setAttribute("aria-label", "How it is built");
    return list;
  }

  // x_t and x^{t} with their letters below and above the line; equations that follow each other, a line each
  function formula(text) {
    return text.split(/,?\s{2,}/).flatMap((line, i) => [...(i ? [make("br")] : []), ...line.split(/([_^](?:\{[^}]*\}|\w+|[^\s(]))/).map((part) => (
      /^[_^]/.test(part) && part.length > 1 ? make(part[0] === "_" ? "sub" : "sup", "", part.slice(1).replace(/^\{|\}$/g, "")) : part))]);
  }

  // an epoch may have no perplexity: it was not measured, or is beyond all numbers
  const validOf = (model) => model.curves.map(({ valid }) => valid).filter((value) => value > 0);

  const NICE = [1, 2, 5];

  // round numbers of a logarithmic axis
  function ticksOf(low, high) {
    const found = [];
    for (let power = 1; power < 1e7; power *= 10) for (const step of NICE) found.push(step * power);
    const inside = found.filter((tick) => tick >= low && tick <= high);
    return inside.length > 1 ? inside : [low, high].map((value) => Number(value.toPrecision(2)));
  }

  function curves(models) {
    if (!models.length) return make("p", "note", "No log of a training is there.");
    const width = 640, height = 260, left = 46, right = 110, bottom = 30;
    const values = models.flatMap(({ curves: rows }) => rows.flatMap(({ train, valid }) => [train, valid])).filter((value) => value > 0);
    const low = 0.93 * Math.min(...values), high = 1.07 * Math.max(...values);
    const epochs = Math.max(...models.map(({ curves: rows }) => last(rows).epoch), 2);
    const x = (epoch) => left + (width - left - right) * (epoch - 1) / (epochs - 1);
    const y = (value) => 10 + (height - bottom - 10) * (Math.log(high) - Math.log(value)) / (Math.log(high) - Math.log(low));
    const svg = draw("svg", { class: "curves", viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": models.map((model) => `${nameOf(model)}: perplexity of valid from ${validOf(model)[0].toFixed(0)} to ${Math.min(...validOf(model)).toFixed(0)} in ${model.curves.length} epochs`).join("; ") });
    const text = (at, up, content, anchor = "middle") => {
      const label = draw("text", { x: at, y: up, "text-anchor": anchor });
      label.textContent = content;
      svg.append(label);
      return label;
    };
    for (const tick of ticksOf(low, high)) {
      svg.append(draw("path", { class: "grid", d: `M${left} ${y(tick)}H${width - right}` }));
      text(left - 6, y(tick) + 4, thousands(tick), "end");
    }
    const step = Math.max(1, Math.ceil(epochs / 10));
    for (let epoch = 1; epoch <= epochs; epoch += step) text(x(epoch), height - 10, String(epoch));
    const ends = [];
    models.forEach((model, i) => {
      for (const part of ["train", "valid"]) {
        const points = model.curves.filter((row) => row[part] > 0);
        if (!points.length) continue;
        const d = points.map((row, k) => `${k ? "L" : "M"}${x(row.epoch).toFixed(1)} ${y(row[part]).toFixed(1)}`).join("");
        svg.append(draw("path", { class: `line ${part} colour-${i % 4}`, d }));
        for (const row of points) svg.append(draw("circle", { class: `${part} colour-${i % 4}`, cx: x(row.epoch), cy: y(row[part]), r: part === "valid" ? 3 : 2 }));
        ends.push({ at: y(last(points)[part]), colour: i % 4, name: models.length > 1 ? `${nameOf(model)} ${part}` : part });
      }
    });
    ends.sort((a, b) => a.at - b.at).forEach((end, i) => { // names of lines that end close together stand apart
      if (i) end.at = Math.max(end.at, ends[i - 1].at + 14);
      text(width - right + 12, end.at + 4, end.name, "start").setAttribute("class", `colour-${end.colour}`);
    });
    return make("figure", "", svg, make("figcaption", "note", term("perplexity", "Perplexity"), " after each ", term("epoch"),
      ", on a logarithmic axis; lower is better. Train is measured while the weights still move, with dropout; ", term("valid"), " is text kept out of training."));
  }

  // runs of one corpus share their examples
  function layExamples() {
    const groups = {};
    for (const model of app.models) if (model.examples.length) (groups[JSON.stringify(model.examples)] ??= []).push(model);
    return Object.values(groups).map(([model, ...others]) => make("div", "",
      ...(app.models.length > 1 ? [make("h3", "", [model, ...others].map(nameOf).join(", "))] : []),
      make("ol", "example-list", ...model.examples.map((example) => make("li", "",
        button(example.title, () => openExample(model, example), "bare link"), make("span", "given", example.text), make("span", "note", example.look))))));
  }

  function glossary() {
    const list = make("dl", "glossary");
    for (const [name, meaning] of Object.entries(TERMS)) list.append(make("div", "", make("dt", "", name), make("dd", "", meaning)));
    return list;
  }

  return { show };
})();
