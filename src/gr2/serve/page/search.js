const K = 10, PAUSE = 220, SLOW = 3000, GIVE_UP = 60000;
const [form, q, field, has, statusLine] = ["form", "q", "field", "has", "status"].map($);
let turn = 0, timer = 0, waking = 0, shown = "", controller = null;

function asked() {
  return { query: q.value, field: field.value, has: has.value.trim() };
}

function link({ query, field, has }) {
  const parts = new URLSearchParams();
  if (query.trim()) parts.set("q", query);
  if (has) { parts.set("field", field); parts.set("has", has); }
  return parts.size ? `/?${parts}` : "/";
}

function fromLink() {
  const parts = new URLSearchParams(location.search);
  q.value = parts.get("q") ?? "";
  has.value = parts.get("has") ?? "";
  field.value = ["title", "url", "docno"].includes(parts.get("field")) ? parts.get("field") : "title";
  $("narrowing").open = has.value !== "";
}

/* One search at a time: a new one aborts the previous one, whose answer is discarded. */
async function search(record = "replaceState") {
  clearTimeout(timer); clearTimeout(waking);
  controller?.abort();
  const mine = ++turn, want = asked(), there = link(want);
  document.title = want.query.trim() ? `${want.query.trim()} – GR²` : "GR² search";
  if (there !== location.pathname + location.search) history[record](null, "", there);
  if (!want.query.trim()) return first();
  controller = new AbortController();
  const { signal } = controller, began = performance.now();
  document.body.classList.add("busy");
  const patience = setTimeout(() => { statusLine.textContent = "Still searching; the server is busy …"; }, SLOW);
  const limit = setTimeout(() => controller.abort(), GIVE_UP);
  try {
    const body = { query: want.query, k: K, bm25: true };
    if (want.has) body.filter = { field: want.field, contains: want.has };
    const reply = await fetch("/search", { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
    const content = await reply.json().catch(() => ({ detail: "the reply of the server is not valid JSON" }));
    if (mine !== turn) return;
    if (reply.ok) results(content, performance.now() - began);
    else problem(reply, content.detail);
  } catch (error) {
    if (mine === turn) gone();
  } finally {
    clearTimeout(patience); clearTimeout(limit);
    if (mine === turn) document.body.classList.remove("busy");
  }
}

function results({ answers: [answer], milliseconds }, whole) {
  if (!answer.results.length) return nothing(answer);
  notice.hidden = true; main.hidden = false; shown = answer.query;
  const places = (rows) => new Map((rows ?? []).map((row) => [row.docno, row.rank]));
  const ours = places(answer.results), theirs = places(answer.bm25), both = answer.bm25 !== null;
  const best = answer.results[0].score;
  $("ours").querySelector("ol").replaceChildren(...answer.results.map((hit) =>
    item(hit, both ? rankIn("BM25", theirs.get(hit.docno)) : null, best)));
  $("beside").querySelector("ol").replaceChildren(...(answer.bm25 ?? []).map((hit) =>
    item(hit, rankIn("GR²", ours.get(hit.docno)), null)));
  if (both && !answer.bm25.length) $("beside").querySelector("ol").append(el("li", { className: "meta" }, "No document shares a word with the query."));
  $("beside").hidden = !both;
  main.classList.toggle("two", both);
  const parts = [`${answer.results.length} ${answer.results.length === 1 ? "result" : "results"}`];
  parts.push(`${format(milliseconds)} ms on the server, ${format(whole)} ms in total`);
  if (answer.allowed !== null) parts.push(`among ${answer.allowed.toLocaleString("en")} documents`);
  if (answer.cut) parts.push("query too long, only the beginning was used");
  statusLine.textContent = parts.join(" · ");
}

const format = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const rankIn = (name, rank) => (rank ? `${name} rank ${rank}` : `not in ${name}’s top ${K}`);

function item(hit, other, best) {
  const title = el("button", { type: "button", textContent: hit.title || hit.docid || hit.docno, ariaExpanded: "false" });
  const node = el("li", { className: "hit" },
    el("span", { className: "rank", ariaHidden: "true" }, String(hit.rank)),
    el("div", { className: "head" }, el("h3", {}, title), best === null ? null : bar(hit.score, best)),
    snippet(hit.snippet),
    hit.path ? path(hit.path) : null,
    hit.views && Object.keys(hit.views).length ? why(hit.views) : null,
    el("p", { className: "meta" }, el("span", {}, hit.docno), weblink(hit.url), other === null ? null : el("span", {}, other)));
  node.dataset.docno = hit.docno;
  title.addEventListener("click", () => open(node, title, hit.docno));
  return node;
}

/* Four segments, like four grades; each one less is a factor of e² in probability. */
function bar(score, best) {
  const strength = 4 * Math.max(0.04, 1 + (score - best) / 8);
  const label = `log P ${score.toFixed(2)}, ${(best - score).toFixed(2)} below the best`;
  const node = el("div", { className: "bar", role: "img", ariaLabel: label, title: label });
  for (let part = 0; part < 4; part++) {
    const piece = el("i", {});
    piece.style.setProperty("--fill", `${100 * Math.min(1, Math.max(0, strength - part))}%`);
    node.append(piece);
  }
  return node;
}

/* What brought the document here: the share of each view in its score. */
const VIEWS = { words: "words of the query", vectors: "similar meaning", learned: "learned from judgements", memory: "judged for similar queries", decoder: "the decoder, which reads query and docid" };
function why(views) {
  const parts = Object.entries(views).filter(([, value]) => Math.abs(value) >= 0.05).map(([name, value]) =>
    el("span", { title: `${VIEWS[name] ?? name}: ${value.toFixed(2)} of the score` }, `${name} ${value.toFixed(1)}`));
  return el("p", { className: "meta why" }, el("span", {}, "Found by"), ...parts);
}

function path(steps) {
  const node = el("p", { className: "path" }, el("span", { className: "hidden" }, "Path through the trie: "));
  let certain = "";
  const flush = () => { if (certain.trim()) node.append(el("span", { title: "the only possible token" }, certain.trim()), " "); certain = ""; };
  for (const step of steps) {
    if (step.choices === 1) { certain += step.text; continue; }
    flush();
    const count = el("sub", {}, el("span", { className: "hidden" }, " of "), step.choices.toLocaleString("en"));
    node.append(el("b", { title: `chosen from ${step.choices.toLocaleString("en")} tokens` }, step.text.trim() || "␣", count));
  }
  flush();
  return node;
}

function first() {
  document.body.classList.remove("busy");
  statusLine.textContent = "";
  say("What are you looking for?", false, el("p", {}, "The model reads your query and generates document identifiers token by token."));
}

function nothing(answer) {
  statusLine.textContent = "0 results";
  const why = answer.allowed === 0 ? "No document matches the filter." : "The model found no document for this query.";
  say("No results", false, el("p", {}, why));
}

function again() {
  return el("button", { type: "button", className: "quiet", onclick: () => search() }, "Try again");
}

function problem(reply, detail) {
  statusLine.textContent = "";
  if (reply.status === 401) return askKey(search);
  if (reply.status !== 503) return say("Search failed", true, el("p", {}, detail), again());
  let left = Number(reply.headers.get("retry-after")) || 1;
  const text = el("p", {});
  say("The server is busy", true, text, again());
  const tick = () => {
    text.textContent = `Retrying in ${left} s.`;
    if (left-- > 0) waking = setTimeout(tick, 1000); else search();
  };
  tick();
}

/* Poll until the server is back, then repeat the search. */
function gone() {
  statusLine.textContent = "";
  say("The server is not responding", true, el("p", {}, "It may have stopped. Your search will be repeated when the server is back."), again());
  const look = () => fetch("/health").then(() => search(), () => { waking = setTimeout(look, 2000); });
  waking = setTimeout(look, 2000);
}

const later = () => { clearTimeout(timer); timer = setTimeout(() => search(), PAUSE); };
q.addEventListener("input", later);
has.addEventListener("input", later);
field.addEventListener("change", () => search());
form.addEventListener("submit", (event) => { event.preventDefault(); search("pushState"); });
addEventListener("popstate", () => { fromLink(); search(); });
for (const button of document.querySelectorAll(".switch button")) {
  button.addEventListener("click", () => show(button.dataset.show));
}

function show(which) {
  main.dataset.show = which;
  for (const button of document.querySelectorAll(".switch button")) button.ariaPressed = String(button.dataset.show === which);
}

const titles = (section) => [...$(section).querySelectorAll("h3 button")];

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return;
  const at = document.activeElement, typing = at.matches?.("input, select, .full");
  if (event.key === "/" && !typing) { event.preventDefault(); q.focus(); q.select(); return; }
  if (event.key === "Escape") { if (at === q && q.value) { q.value = ""; search(); } else { q.focus(); q.select(); } event.preventDefault(); return; }
  const section = at.closest?.("section")?.id ?? main.dataset.show, rows = titles(section), place = rows.indexOf(at);
  if (main.hidden || (typing && at !== q)) return;
  let next = null;
  if (event.key === "ArrowDown") next = rows[place + 1] ?? null;
  else if (event.key === "ArrowUp" && place >= 0) next = rows[place - 1] ?? q;
  else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && place >= 0 && main.classList.contains("two")) {
    const other = section === "ours" ? "beside" : "ours", there = titles(other);
    show(other);
    next = there[Math.min(place, there.length - 1)] ?? null;
  }
  if (next) { event.preventDefault(); next.focus(); }
});

function twins(event) {
  const docno = event.target.closest?.(".hit")?.dataset.docno;
  for (const hit of document.querySelectorAll(".hit")) hit.classList.toggle("twin", docno !== undefined && hit.dataset.docno === docno);
}
main.addEventListener("focusin", twins);
main.addEventListener("mouseover", twins);

fetch("/health").then((reply) => reply.json()).then((health) => {
  const count = health.documents.toLocaleString("en");
  q.placeholder = `Search ${count} documents`;
  const parts = [`${health.model}: ${count} documents${health.collection ? ` of ${health.collection}` : ""}.`];
  if (!health.texts) parts.push("The model folder contains no documents, so results show docids and scores only.");
  else if (!health.bm25) parts.push(`No BM25: ${health.bm25_note}.`);
  $("facts").textContent = parts.join(" ");
  $("narrowing").hidden = !health.texts;
  $("judging").hidden = !health.judging;
}).catch(() => { if (!q.value.trim()) gone(); });
fromLink();
search();
