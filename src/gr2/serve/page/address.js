/* What the page shows ↔ its address: a query with its filter, the ranking beside it, a document, or what is like one. */
const RIVALS = {
  bm25: ["BM25", "BM25: matching words"],
  dense: ["Dense", "Dense: meaning alone"],
  hybrid: ["Hybrid", "Hybrid: words and meaning, nothing learned"],
};
const FIELDS = ["title", "url", "docno"];
const NOTHING = { query: "", field: "title", has: "", compare: "", like: "", doc: "" };
let view = { ...NOTHING };

function addressOf({ query, field, has, compare, like, doc }) {
  const parts = new URLSearchParams();
  if (query.trim()) parts.set("q", query);
  if (has) { parts.set("field", field); parts.set("has", has); }
  if (compare) parts.set("compare", compare);
  if (like) parts.set("like", like);
  if (doc) parts.set("doc", doc);
  return parts.size ? `/?${parts}` : "/";
}

function viewAt(address) {
  const parts = new URL(address, location.href).searchParams, get = (name) => parts.get(name) ?? "";
  return {
    query: get("q"), has: get("has"), like: get("like"), doc: get("doc"),
    field: FIELDS.includes(get("field")) ? get("field") : "title",
    compare: Object.hasOwn(RIVALS, get("compare")) ? get("compare") : "",
  };
}

/* Change what is shown; a pushed address can be left with the back button. */
function go(changes, record = "pushState") {
  view = { ...view, ...changes };
  const there = addressOf(view);
  if (there !== location.pathname + location.search) history[record]({ inside: record === "pushState" || history.state?.inside }, "", there);
  render();
}

/* Links within the page need no reload; with Ctrl and the like they open in a tab of their own. */
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const there = link.getAttribute("href");
  if (there !== "/" && !there.startsWith("/?")) return;
  event.preventDefault();
  go(viewAt(there));
  fill();
});
addEventListener("popstate", () => { view = viewAt(location.href); fill(); render(); });
history.scrollRestoration = "manual";
