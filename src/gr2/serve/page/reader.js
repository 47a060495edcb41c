/* A document in full, at an address of its own; closing it goes back to where it was opened. */
const reader = $("reader");
let left = { docno: "", section: "ours", scroll: 0 };

async function read(docno) {
  if (!main.hidden) left = { docno, section: document.activeElement.closest?.("section")?.id ?? "ours", scroll: scrollY };
  const found = await ask(pathOf("documents", docno));
  if (!found) return;
  const name = found.title || found.docno;
  document.title = `${name} – GR²`;
  statusLine.textContent = "";
  main.hidden = notice.hidden = true; reader.hidden = false;
  $("close").textContent = view.query || view.like ? "← Back to results" : "← Search";
  $("reader-title").textContent = name;
  $("reader-meta").replaceChildren(...[el("span", {}, found.docno), weblink(found.url), canCompare.dense && found.docid ? alikeLink(found.docno) : null].filter(Boolean));
  $("reader-text").textContent = found.text || "The document has no text.";
  $("reader-title").focus({ preventScroll: true });
  scrollTo(0, 0);
}

function close() {
  if (history.state?.inside) history.back();
  else go({ doc: "" }, "replaceState");
}

/* The results are still there: show them as they were left. */
function comeBack() {
  reader.hidden = notice.hidden = true; main.hidden = false;
  statusLine.textContent = resultLine;
  const hits = [...$(left.section).querySelectorAll(".hit")];
  hits.find((hit) => hit.dataset.docno === left.docno)?.querySelector("h3 a").focus({ preventScroll: true });
  scrollTo(0, left.scroll);
}

$("close").addEventListener("click", close);
