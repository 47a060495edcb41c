/* The search page: what its address says is asked and shown. */
const K = 10, PAUSE = 220;
const [form, q, field, has, compare] = ["form", "q", "field", "has", "compare"].map($);
let timer = 0, shown = "", resultLine = "";
let canCompare = { bm25: false, dense: false, hybrid: false };

function fill() {
  [q.value, has.value, field.value, compare.value] = [view.query, view.has, view.field, view.compare];
  if (view.has) $("narrowing").open = true;
}

async function render() {
  clearTimeout(timer);
  settle();
  const name = view.query.trim() || (view.like && `Like ${view.like}`);
  document.title = name ? `${name} – GR²` : "GR² search";
  $("comparing").hidden = Boolean(view.like || view.doc) || compare.options.length === 1;
  if (view.doc) return read(view.doc);
  const place = addressOf(view);
  if (place === shown) return comeBack();
  if (!view.like && !view.query.trim()) return first();
  const found = await (view.like ? ask(`${pathOf("similar", view.like)}?k=${K}`) : ask("/search", wanted()));
  if (!found) return;
  const answer = view.like ? { ...found, allowed: null, cut: false } : found.answers[0];
  if (!answer.results.length) return nothing(answer);
  reader.hidden = notice.hidden = true; main.hidden = false; shown = place;
  if (view.like) similar(answer); else results(answer);
  resultLine = line(answer, found.milliseconds, found.whole);
  statusLine.textContent = resultLine;
}

function wanted() {
  const body = { query: view.query, k: K, explain: true };
  if (view.compare) body[view.compare] = true;
  if (view.has) body.filter = { field: view.field, contains: view.has };
  return body;
}

function results(answer) {
  const beside = (view.compare && answer[view.compare]) || null, [short, long] = RIVALS[view.compare] ?? ["", ""];
  const places = (rows) => new Map((rows ?? []).map((row) => [row.docno, row.rank]));
  const ours = places(answer.results), theirs = places(beside), best = answer.results[0].score;
  list("ours", "GR²: the most likely answers", answer.results.map((hit) => item(hit, {
    other: beside ? rankIn(short, theirs.get(hit.docno)) : null, strength: likelihood(hit.score, best), more: true })));
  list("beside", long, (beside ?? []).map((hit) => item(hit, { other: rankIn("GR²", ours.get(hit.docno)) })));
  if (beside && !beside.length) $("beside").querySelector("ol").append(el("li", { className: "meta" }, "No document shares a word with the query."));
  if (short) $("rival").textContent = short;
  two(beside !== null);
}

function similar(answer) {
  const name = el("a", { href: addressOf({ ...view, doc: view.like }) }, view.like);
  list("ours", "", answer.results.map((hit) => item(hit, { strength: likeness(hit.score) })));
  $("ours-name").replaceChildren("Documents like ", name);
  two(false);
  $("ours-name").className = "";
}

function list(section, heading, items) {
  $(`${section}-name`).textContent = heading;
  $(section).querySelector("ol").replaceChildren(...items);
}

function two(both) {
  $("beside").hidden = !both;
  main.classList.toggle("two", both);
  $("ours-name").className = both ? "" : "hidden";
  show(both ? main.dataset.show : "ours");
}

const rankIn = (name, rank) => (rank ? `${name} rank ${rank}` : `not in ${name}’s top ${K}`);

function line(answer, server, whole) {
  const parts = [`${answer.results.length} ${answer.results.length === 1 ? "result" : "results"}`];
  parts.push(`${decimal(server, server < 10 ? 1 : 0)} ms on the server`, `${decimal(whole, whole < 10 ? 1 : 0)} ms round trip`);
  if (answer.allowed !== null) parts.push(`among ${answer.allowed.toLocaleString("en")} documents`);
  if (answer.cut) parts.push("query too long, only the beginning was used");
  return parts.join(" · ");
}

/* The page without a query: some to begin with, if the model knows any. */
async function first() {
  tell("What are you looking for?", false, el("p", {}, "Ask a question or type some words."));
  const reply = await fetch("/examples", { headers: headers() }).catch(() => null);
  const { queries } = reply?.ok ? await reply.json() : { queries: [] };
  if (!queries.length || addressOf(view) !== addressOf({ ...NOTHING, compare: view.compare }) || notice.querySelector(".examples")) return;
  const links = queries.map((query) => el("li", {}, el("a", { href: addressOf({ ...view, query }) }, query)));
  notice.append(el("p", {}, "Or try one that people have judged:"), el("ul", { className: "examples" }, ...links));
}

function nothing(answer) {
  const why = answer.allowed === 0 ? "No document matches the filter." : "The model found no document for this.";
  tell("No results", false, el("p", {}, why));
  statusLine.textContent = "0 results";
}

const typed = () => ({ query: q.value, field: field.value, has: has.value.trim(), like: "", doc: "" });
const later = () => { clearTimeout(timer); timer = setTimeout(() => go(typed(), "replaceState"), PAUSE); };
q.addEventListener("input", later);
has.addEventListener("input", later);
field.addEventListener("change", () => go(typed(), "replaceState"));
compare.addEventListener("change", () => go({ compare: compare.value }, "replaceState"));
form.addEventListener("submit", (event) => { event.preventDefault(); shown = ""; go(typed()); });
for (const button of document.querySelectorAll(".switch button")) {
  button.addEventListener("click", () => show(button.dataset.show));
}

function show(which) {
  main.dataset.show = which;
  for (const button of document.querySelectorAll(".switch button")) button.ariaPressed = String(button.dataset.show === which);
}

const titles = (section) => [...$(section).querySelectorAll("h3 a")];

function escape(at) {
  if (!reader.hidden) return close();
  if (at === q && q.value) { q.value = ""; return go({ ...NOTHING, compare: view.compare }, "replaceState"); }
  q.focus(); q.select();
}

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing) return;
  const at = document.activeElement, typing = at.matches?.("input, select");
  if (event.key === "/" && !typing) { event.preventDefault(); q.focus(); q.select(); return; }
  if (event.key === "Escape") { event.preventDefault(); return escape(at); }
  const section = at.closest?.("section")?.id ?? main.dataset.show, rows = titles(section);
  const hit = at.closest?.(".hit"), place = rows.findIndex((title) => hit?.contains(title));
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

/* What the server can do is asked first, so that results show only what works. */
async function start() {
  view = viewAt(location.href);
  fill();
  const health = await fetch("/health").then((reply) => reply.json()).catch(() => null);
  if (!health) return gone();
  const count = health.documents.toLocaleString("en");
  canCompare = { bm25: health.bm25, dense: health.dense, hybrid: health.hybrid };
  for (const option of [...compare.options]) if (option.value && !canCompare[option.value]) option.remove();
  q.placeholder = `Search ${count} documents`;
  const parts = [`${health.model}: ${count} documents${health.collection ? ` of ${health.collection}` : ""}.`];
  if (!health.texts) parts.push("The model folder contains no documents, so results show docids and scores only.");
  else if (!health.bm25) parts.push(`No BM25: ${health.bm25_note}.`);
  $("facts").textContent = parts.join(" ");
  $("narrowing").hidden = !health.texts;
  $("judging").hidden = !health.judging;
  render();
}
start();
