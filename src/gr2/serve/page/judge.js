/* Judging: one query at a time, its documents in a mixed list, a grade for each. */
const NAME = "gr2-judge";
const [form, q, statusLine, place, documents, moves, unsavedBox] =
  ["form", "q", "status", "place", "documents", "moves", "unsaved"].map($);
let judge = "", current = "", queries = [], grades = 4, words = [], judged = 0, turn = 0;
let unsaved = [], saving = Promise.resolve();

/* The server's reply; an Error says what went wrong, in a sentence. */
async function ask(path, body) {
  const options = { headers: headers() };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let reply;
  try { reply = await fetch(path, options); } catch { throw new Error("The server is not responding."); }
  const content = await reply.json().catch(() => ({ detail: "the reply of the server is not valid JSON" }));
  if (!reply.ok) throw Object.assign(new Error(content.detail), { status: reply.status });
  return content;
}

function failed(error) {
  document.body.classList.remove("busy");
  if (error.status === 401) return askKey(start);
  say("Something went wrong", true, el("p", {}, error.message), el("button", { type: "button", className: "quiet", onclick: start }, "Try again"));
}

const gradeName = (grade) => (words[grade] ? `${grade} ${words[grade]}` : String(grade));
const hits = () => [...documents.querySelectorAll(".hit")];
const asked = () => queries.find((each) => each.query === current);

/* Who judges: from the link, from an earlier visit, as the server proposes, or by asking. */
async function start() {
  try {
    const link = new URLSearchParams(location.search);
    judge = (link.get("judge") ?? localStorage.getItem(NAME) ?? "").trim();
    await readQueries();
    if (!judge) return askName();
    const wanted = link.get("q") || queries.find((each) => !each.judged)?.query || queries[0]?.query;
    $("name").textContent = judge;
    $("who").hidden = false;
    notice.hidden = true; main.hidden = false;
    showLearning();
    if (wanted) await show(wanted);
    else noQuery();
  } catch (error) { failed(error); }
}

async function readQueries() {
  const found = await ask(`/judging/queries?${new URLSearchParams({ judge })}`);
  if (!judge && found.judge) { judge = found.judge; return readQueries(); }
  ({ queries, grades, words, judged } = found);
  $("grade-keys").textContent = `0 to ${grades}${words.length ? ` (${words.join(", ")})` : ""} grade and go on`;
}

function askName() {
  const name = el("input", { id: "judge", maxLength: 100, autocomplete: "nickname", required: true, value: judge });
  const ask = el("form", { onsubmit: (event) => { event.preventDefault(); setName(name.value.trim()); } },
    el("label", { htmlFor: "judge", className: "hidden" }, "Your name"), name, el("button", { className: "solid" }, "Start"));
  moves.hidden = true;
  say("Who is judging?", false, el("p", {}, "Your grades are kept under this name, apart from those of others."), ask);
  name.focus();
}

function setName(name) {
  if (!name) return;
  localStorage.setItem(NAME, name);
  const link = new URLSearchParams(location.search);
  link.delete("judge");
  history.replaceState(null, "", link.size ? `/judge?${link}` : "/judge");
  start();
}

function noQuery() {
  $("query").textContent = "Judge results";
  moves.hidden = true;
  documents.replaceChildren(el("li", { className: "note" }, "Type a query to judge what is found for it."));
  q.focus();
}

/* Show the documents of a query; the focus goes to `docno`, or to the first without a grade. */
async function show(query, docno = null) {
  const mine = ++turn;
  document.body.classList.add("busy");
  try {
    const found = await ask(`/judging/pool?${new URLSearchParams({ query, judge })}`);
    if (mine !== turn) return;
    current = query.trim().split(/\s+/).join(" ");
    const link = new URLSearchParams(location.search);
    link.set("q", current);
    history.replaceState(null, "", `/judge?${link}`);
    document.title = `${current} – GR² judging`;
    $("query").textContent = current;
    moves.hidden = false; q.value = "";
    documents.replaceChildren(...found.documents.map(item));
    if (!found.documents.length) documents.append(el("li", { className: "note" }, "No system found a document for this query."));
    progress();
    scrollTo(0, 0);
    const first = hits().find((hit) => (docno ? hit.dataset.docno === docno : hit.dataset.grade === ""));
    focusOn(first ?? hits()[0]);
    document.body.classList.remove("busy");
  } catch (error) { if (mine === turn) failed(error); }
}

function item(found) {
  const name = found.title || found.docno;
  const title = el("button", { type: "button", textContent: name, ariaExpanded: "false" });
  const buttons = Array.from({ length: grades + 1 }, (_, grade) =>
    el("button", { type: "button", onclick: () => give(node, grade) }, el("b", {}, String(grade)), words[grade] ? ` ${words[grade]}` : ""));
  const group = el("div", { className: "grades", role: "group", ariaLabel: `Grade of ${name}` }, ...buttons);
  const node = el("li", { className: "hit" }, el("h3", {}, title), snippet(found.snippet),
    el("p", { className: "meta" }, el("span", {}, found.docno), weblink(found.url)), group);
  node.dataset.docno = found.docno;
  title.addEventListener("click", () => open(node, title, found.docno));
  mark(node, found.grade);
  return node;
}

/* Show a document below its title, or hide it again. */
async function open(node, title, docno) {
  const old = node.querySelector(".full");
  title.ariaExpanded = String(!old);
  if (old) return old.remove();
  const full = el("div", { className: "full", tabIndex: 0, role: "region", ariaLabel: "Document" }, "Loading …");
  node.append(full);
  try {
    const reply = await fetch(pathOf("documents", docno), { headers: headers() });
    const content = await reply.json();
    full.textContent = reply.ok ? content.text || "The document has no text." : content.detail;
  } catch { full.textContent = "The server is not responding."; }
}

function mark(hit, grade) {
  hit.dataset.grade = grade ?? "";
  [...hit.querySelectorAll(".grades button")].forEach((button, each) => { button.ariaPressed = String(each === grade); });
}

function focusOn(hit) {
  (hit?.querySelector("h3 button") ?? $("next")).focus({ preventScroll: true });
  hit?.scrollIntoView({ block: "nearest" });
}

/* Grade a document and go on to the next one; what is said to be saved is on the server's disk. */
function give(hit, grade) {
  hit.classList.add("saving");
  const given = { query: current, docno: hit.dataset.docno, grade, judge, qid: asked()?.qid ?? "" };
  saving = saving.then(() => save(hit, given));
  const all = hits();
  focusOn(all[all.indexOf(hit) + 1]);
}

async function save(hit, given) {
  try {
    await ask("/judgements", [given]);
    unsaved = unsaved.filter(([, other]) => other.docno !== given.docno || other.query !== given.query);
    hit.classList.remove("saving");
    const isNew = hit.dataset.grade === "";
    mark(hit, given.grade);
    if (isNew) counted(given.query, 1);
    statusLine.textContent = `Saved: ${gradeName(given.grade)} for ${hit.querySelector("h3").textContent}`;
  } catch (error) {
    if (!unsaved.some(([, other]) => other === given)) unsaved.push([hit, given]);
    tellUnsaved(error.message);
    return;
  }
  tellUnsaved("");
}

function tellUnsaved(why) {
  unsavedBox.hidden = !unsaved.length;
  if (unsaved.length && why) unsavedBox.replaceChildren(
    el("span", {}, `${unsaved.length} ${unsaved.length === 1 ? "grade is" : "grades are"} not saved. ${why}`),
    el("button", { type: "button", className: "quiet", onclick: () => unsaved.forEach((each) => { saving = saving.then(() => save(...each)); }) }, "Save again"));
}

function counted(query, change) {
  judged += change;
  let row = queries.find((each) => each.query === query);
  if (!row) queries.push(row = { query, qid: "", count: 1, judged: 0, judged_by_all: 0 });
  row.judged += change;
  progress();
}

function progress() {
  const all = hits(), done = all.filter((hit) => hit.dataset.grade !== "").length, at = queries.indexOf(asked());
  const parts = at >= 0 ? [`Query ${at + 1} of ${queries.length.toLocaleString("en")}`] : ["A query of your own"];
  parts.push(`${done} of ${all.length} judged`, `${judged.toLocaleString("en")} in all`);
  place.textContent = parts.join(" · ");
  $("bar").style.setProperty("--done", `${all.length ? (100 * done) / all.length : 0}%`);
  $("queries").replaceChildren(...queries.map((each) => {
    const row = el("li", {}, el("button", { type: "button", onclick: () => show(each.query) }, each.query, el("span", {}, each.judged ? String(each.judged) : "")));
    if (each.query === current) row.setAttribute("aria-current", "true");
    return row;
  }));
}

/* The next query of the list that you have not begun, from the present one on. */
function next() {
  const at = queries.indexOf(asked()), order = [...queries.slice(at + 1), ...queries.slice(0, Math.max(0, at))];
  const found = order.find((each) => !each.judged);
  if (found) show(found.query);
  else statusLine.textContent = "You have begun every query. Type another one, or learn.";
}

function previous() {
  const at = queries.indexOf(asked());
  if (at > 0) show(queries[at - 1].query);
}

function undo() {
  saving = saving.then(async () => {
    try {
      const { undone, grade } = await ask("/judgements/undo", { judge });
      const hit = undone.query === current ? hits().find((each) => each.dataset.docno === undone.docno) : null;
      if (hit) mark(hit, grade);
      if (grade === null) counted(undone.query, -1);
      statusLine.textContent = `Undone: ${gradeName(undone.grade)} for ${hit?.querySelector("h3").textContent ?? undone.docno}`;
      if (hit) focusOn(hit); else await show(undone.query, undone.docno);
    } catch (error) { statusLine.textContent = error.message; }
  });
}

form.addEventListener("submit", (event) => { event.preventDefault(); if (q.value.trim()) show(q.value); });
$("next").addEventListener("click", next);
$("previous").addEventListener("click", previous);
$("undo").addEventListener("click", undo);
$("rename").addEventListener("click", askName);
addEventListener("beforeunload", (event) => { if (unsaved.length) event.preventDefault(); });

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.isComposing || main.hidden) return;
  const at = document.activeElement, all = hits();
  if (at.matches?.("input")) { if (event.key === "Escape") focusOn(all[0]); return; }
  const hit = at.closest?.(".hit"), row = all.indexOf(hit);
  const inText = at.matches?.(".full") && event.key.startsWith("Arrow");
  const step = inText ? 0 : { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key] ?? 0;
  const grade = /^[0-9]$/.test(event.key) ? Number(event.key) : null;
  if (step && all.length) focusOn(all[Math.min(all.length - 1, Math.max(0, row + step))]);
  else if (grade !== null && grade <= grades && hit) give(hit, grade);
  else if (event.key === "u") undo();
  else if (event.key === "n") next();
  else if (event.key === "/") q.focus();
  else return;
  event.preventDefault();
});
