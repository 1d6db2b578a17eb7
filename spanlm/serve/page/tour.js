"use strict";
// A guided tour of seven steps: each shows one thing on the page itself, which stays usable.

const tour = (() => {
  let at = -1, before = null;
  const card = make("section", "tour");
  card.hidden = true;
  card.setAttribute("aria-label", "Guided tour");
  card.tabIndex = -1;

  const example = (model = app.model) => model.examples[0]?.text ?? "the name is bound to the object . the name is bound";
  const openRead = (more = {}, model = app.model) => writeText(example(model), { run: model.id, pane: "read", lesion: "", cache: "", state: "", pos: "", tint: "surprisal", ...more });
  const reader = () => app.panes.read.reader;
  const sharpest = () => (reader().content ? reader().view.opening() : 0);

  const canForget = (model) => model.lesions.includes("none");
  const NO_MEMORY = {
    title: "Nothing to take away", at: "#about", act: () => openRead(),
    text: "No run that is served here has a memory that can be switched off. Serve one that has, and this step shows what the memory was for.",
  };

  const STEPS = [
    { title: "A text of your own", at: "#text", text: "This field is yours: change a word and watch. The model reads from left to right and guesses each next word.", act: () => openRead() },
    { title: "How surprised it is", at: "#reader .strip", text: "Each bar is a word. The higher, the less the model expected it; one bit more is half the probability. The words above are tinted by the same number.", act: () => openRead() },
    { title: "What it expected", at: "#reader .panel", text: "The outlined word is being guessed. Beside it stand the words the model thought of, and the one that came. Point at, or tap, another word.",
      act: async () => { await openRead(); reader().pin(sharpest(), true); } },
    { title: "Where it looked", at: "#reader .text", text: "Blue words are those it looked back at while it guessed, deeper for more weight. Not every model can: one without a memory has only the summary in its state.",
      act: async () => { await openRead(); reader().pin(sharpest(), true); } },
    { title: "Take the memory away", at: "#lesion", text: "Here its memory is off, though it was trained with it. Ticks on the bars are the surprisal from before: where a bar stands above its tick, the memory had helped.",
      act: () => openRead({ lesion: "none" }, [app.model, ...app.models].find(canForget)) },
    { title: "Let it write", at: "#next", text: "Move the temperature: the bars move before a word is drawn. Draw one, or take another; then ask a word why it came.",
      act: () => writeText(example().split(/\s+/).slice(0, 4).join(" "), { pane: "generate", lesion: "", t: "0.7" }) },
    { title: "Side by side, and passed on", at: "#differences", text: "Compare shows where one model, or one memory, gains. All you see is in the address: copy it, or save the page, under Share.",
      act: () => writeText(example(), { pane: "compare", lesion: "", t: "1" }) },
  ];

  function begin() {
    before ??= { ...app.settings };
    go(0);
  }

  async function go(step) {
    at = step;
    const { title, text, act, at: where } = STEPS[step].at === "#lesion" && !app.models.some(canForget) ? NO_MEMORY : STEPS[step];
    await act();
    if (at !== step) return; // another step, or the end, was quicker
    document.querySelectorAll(".shown").forEach((element) => element.classList.remove("shown"));
    const target = document.querySelector(where);
    target?.classList.add("shown");
    target?.scrollIntoView({ block: "nearest" });
    const back = button("Back", () => go(at - 1)), next = button(step === STEPS.length - 1 ? "Done" : "Next", () => (at === STEPS.length - 1 ? end() : go(at + 1)), "first");
    back.disabled = step === 0;
    const close = button("×", end, "bare away");
    close.setAttribute("aria-label", "end the tour");
    card.replaceChildren(make("p", "note", `${step + 1} of ${STEPS.length}`), close, make("h2", "", title), make("p", "", text), make("div", "buttons", back, next));
    card.hidden = false;
    const box = (target ?? card).getBoundingClientRect(); // it stands beside what it shows
    card.classList.toggle("left", box.left > innerWidth / 2);
    card.classList.toggle("high", box.top > innerHeight / 2);
    next.focus({ preventScroll: true });
  }

  // what a visitor had written before comes back
  function end() {
    card.hidden = true;
    at = -1;
    document.querySelectorAll(".shown").forEach((element) => element.classList.remove("shown"));
    const kept = before;
    before = null;
    if (kept?.text.trim()) writeText(kept.text, kept);
    byId("tour").focus();
  }

  document.body.append(card);
  byId("tour").addEventListener("click", begin);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && at >= 0) end(); });
  return { begin, end };
})();
