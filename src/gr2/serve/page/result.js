/* A result: its title, which opens the document, a bar, a snippet, and why it was found. */
const PARTS = 4, STEP = Math.log(3);
const decimal = (value, digits = 1) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function item(hit, { other = null, strength = null, more = false }) {
  const there = addressOf({ ...view, doc: hit.docno });
  const node = el("li", { className: "hit" },
    el("span", { className: "rank", ariaHidden: "true" }, String(hit.rank)),
    el("div", { className: "head" }, el("h3", {}, el("a", { href: there }, hit.title || hit.docid || hit.docno)), strength && bar(strength)),
    snippet(hit.snippet),
    el("p", { className: "meta" }, el("span", {}, hit.docno), weblink(hit.url), other && el("span", {}, other)));
  if (more) node.append(el("div", { className: "more" }, canCompare.dense ? alikeLink(hit.docno) : null, why(hit)));
  node.dataset.docno = hit.docno;
  return node;
}

const alikeLink = (docno) => el("a", { href: addressOf({ ...NOTHING, compare: view.compare, like: docno }) }, "More like this");

/* How full a bar is, from 0 to 4, and what that means: every missing part is three times less likely. */
function likelihood(score, best) {
  const times = Math.exp(best - score);
  let words = `about ${decimal(times, times < 10 ? 1 : 0)} times less likely than the first`;
  if (times > 1e6) words = "more than a million times less likely than the first";
  else if (score === best) words = "the most likely answer";
  else if (times < 1.15) words = "about as likely as the first";
  return { parts: Math.max(0.15, PARTS + (score - best) / STEP), words: `According to the model, ${words}.`, scale: "A part missing from the bar means three times less likely." };
}

function likeness(cosine) {
  const hundred = Math.round(100 * Math.max(0, cosine));
  return { parts: Math.max(0.15, (PARTS * hundred) / 100), words: `${hundred} of 100 in likeness.`, scale: "A full bar stands for the same meaning, as far as the model’s vectors can tell." };
}

/* Four parts; what they mean is said on hover and on focus. */
function bar({ parts, words, scale }) {
  const node = el("button", { type: "button", className: "bar", ariaLabel: `${words} ${scale}` });
  for (let part = 0; part < PARTS; part++) {
    const piece = el("i", {});
    piece.style.setProperty("--fill", `${100 * Math.min(1, Math.max(0, parts - part))}%`);
    node.append(piece);
  }
  node.append(el("span", { className: "tip", ariaHidden: "true" }, el("b", {}, words), " ", scale));
  return node;
}

/* Why it was found: the points of each view, and behind them the docid. Made when it is opened. */
const VIEWS = {
  words: "Words of your query that it contains",
  vectors: "Closeness in meaning to your query",
  memory: "People judged it good for similar queries",
  learned: "What judgements of other queries taught about such documents",
  prior: "Its kind, whatever is asked: the lengths of text and title, and its place",
  decoder: "What the decoder makes of your query and its identifier",
};

function why(hit) {
  const box = el("details", { className: "why" }, el("summary", {}, "Why this result?"));
  box.addEventListener("toggle", () => { if (box.open && box.childElementCount === 1) box.append(reasons(hit)); });
  return box;
}

function reasons(hit) {
  const parts = Object.entries(hit.views ?? {}).sort(([, one], [, two]) => Math.abs(two) - Math.abs(one));
  const most = Math.max(...parts.map(([, value]) => Math.abs(value)), 1e-9);
  const node = el("div", { className: "reasons" });
  if (parts.length) {
    const total = parts.reduce((sum, [, value]) => sum + value, 0);
    node.append(el("ul", {}, ...parts.map((part) => reason(part, most, hit.words ?? {}))),
      el("p", {}, `Together ${decimal(total)} points. Among all documents, the model gives it a probability of ${percent(hit.score)}.`));
  } else node.append(el("p", {}, `The model writes identifiers of documents as answers. It wrote the one of this document with a probability of ${percent(hit.score)}.`));
  node.append(identifier(hit, parts.length > 0));
  return node;
}

function percent(score) {
  const value = 100 * Math.exp(score);
  if (value >= 99.95) return value > 100 ? "nearly 100 %" : "over 99.9 %";
  return value < 0.01 ? "less than 0.01 %" : `${decimal(value, value < 1 ? 2 : 1)} %`;
}

function reason([name, value], most, words) {
  const length = el("i", { className: value < 0 ? "less" : "" });
  length.style.setProperty("--fill", `${(100 * Math.abs(value)) / most}%`);
  const matched = name === "words" ? Object.entries(words) : [];
  return el("li", {}, el("span", {}, VIEWS[name] ?? name), el("b", {}, signed(value)), length,
    matched.length ? el("small", {}, ...matched.flatMap(([word, part], at) => [at ? " · " : "", el("mark", {}, word), ` ${signed(part)}`])) : null);
}

const signed = (value) => `${value < 0 ? "−" : "+"}${decimal(Math.abs(value))}`;

/* The docid and its path through all docids, for those who want to know. */
function identifier(hit, scored) {
  const about = scored
    ? "This model gives points to whole documents, so the identifier is no reason for the rank."
    : "The model can only write identifiers that exist, piece by piece.";
  return el("details", {}, el("summary", {}, "Its identifier"),
    el("p", {}, `Every document has an identifier of its own, the docid, here “${hit.docid}”. ${about} A box marks a piece after which several documents were still possible, with the number of pieces to choose from; the others were certain.`),
    path(hit.path));
}

function path(steps) {
  const node = el("p", { className: "path" });
  let certain = "";
  const flush = () => { if (certain.trim()) node.append(el("span", {}, certain.trim()), " "); certain = ""; };
  for (const step of steps) {
    if (step.choices === 1) { certain += step.text; continue; }
    flush();
    node.append(el("b", {}, step.text.trim() || "␣", el("sub", {}, el("span", { className: "hidden" }, " of "), step.choices.toLocaleString("en"))));
  }
  flush();
  return node;
}
