"use strict";
// The page of one text: its content is inside, and its address opens a position (#pos=12).

const reader = new Reader(document.getElementById("reader"), { onSelect: (t, pinned) => writeHash(pinned ? `#pos=${t}` : "") });

function readAddress() {
  const match = /^#pos=(\d+)$/.exec(location.hash);
  if (!match || Number(match[1]) > reader.last) return;
  reader.pinned = true;
  reader.show(Number(match[1]));
  reader.words[reader.current + 1].scrollIntoView({ block: "center" });
}

reader.fill(JSON.parse(document.getElementById("record").textContent));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") reader.release(); });
addEventListener("hashchange", readAddress);
readAddress();
