"use strict";
/* What both pages share: making elements, sending the key, showing a document, and saying what is wrong. */
const $ = (id) => document.getElementById(id);
const KEY = "gr2-key";
const [main, notice] = ["main", "notice"].map($);

function el(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { "content-type": "application/json", "x-api-key": key } : { "content-type": "application/json" };
}

const snippet = (pieces) => pieces.length
  ? el("p", { className: "snippet" }, ...pieces.map((piece) => piece.marked ? el("mark", {}, piece.text) : piece.text)) : null;
const weblink = (url) => /^https?:\/\//i.test(url) ? el("a", { href: url, rel: "noreferrer noopener", target: "_blank" }, url) : null;

async function open(node, title, docno) {
  const old = node.querySelector(".full");
  title.ariaExpanded = String(!old);
  if (old) return old.remove();
  const full = el("div", { className: "full", tabIndex: 0, role: "region", ariaLabel: "Document" }, "Loading …");
  node.append(full);
  try {
    const reply = await fetch(`/documents/${docno.split("/").map(encodeURIComponent).join("/")}`, { headers: headers() });
    const content = await reply.json();
    full.textContent = reply.ok ? content.text || "The document has no text." : content.detail;
  } catch { full.textContent = "The server is not responding."; }
}

function say(heading, alarm, ...content) {
  main.hidden = true; notice.hidden = false;
  notice.className = alarm ? "alarm" : "";
  notice.setAttribute("role", alarm ? "alert" : "");
  notice.replaceChildren(el("h2", {}, heading), ...content);
}

/* Ask for the key, keep it for this tab, and go on. */
function askKey(goOn) {
  const key = el("input", { type: "password", id: "key", autocomplete: "off" });
  const ask = el("form", { onsubmit: (event) => { event.preventDefault(); sessionStorage.setItem(KEY, key.value.trim()); goOn(); } },
    el("label", { htmlFor: "key", className: "hidden" }, "API key"), key, el("button", { className: "solid" }, "Continue"));
  say("API key required", true, el("p", {}, "The key is kept until you close this tab."), ask);
  key.focus();
}
