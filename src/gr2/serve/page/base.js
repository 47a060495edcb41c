"use strict";
/* What both pages share: making elements, sending the key, and saying what is wrong. */
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

/* The address of a document, or of what is like it; an encoded slash keeps a docno that begins with ../ whole. */
const pathOf = (kind, docno) => `/${kind}/${encodeURIComponent(docno)}`;

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
