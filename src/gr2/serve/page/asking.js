/* One request at a time: a new one aborts the previous one, whose reply is discarded. */
const SLOW = 3000, GIVE_UP = 60000;
const statusLine = $("status");
let turn = 0, waking = 0, controller = null;

/* Nothing is awaited any more. */
function settle() {
  clearTimeout(waking);
  controller?.abort();
  document.body.classList.remove("busy");
  return ++turn;
}

/* The content of a reply with `whole`, its round trip in milliseconds; null if it failed, or if another request was made. */
async function ask(path, body) {
  const mine = settle();
  controller = new AbortController();
  const { signal } = controller, began = performance.now();
  document.body.classList.add("busy");
  const patience = setTimeout(() => { statusLine.textContent = "Still searching; the server is busy …"; }, SLOW);
  const limit = setTimeout(() => controller.abort(), GIVE_UP);
  try {
    const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
    const reply = await fetch(path, { ...options, headers: headers(), signal });
    const content = await reply.json().catch(() => ({ detail: "the reply of the server is not valid JSON" }));
    if (mine !== turn) return null;
    if (reply.ok) return { ...content, whole: performance.now() - began };
    problem(reply, content.detail);
  } catch (error) {
    if (mine === turn) gone();
  } finally {
    clearTimeout(patience); clearTimeout(limit);
    if (mine === turn) document.body.classList.remove("busy");
  }
  return null;
}

function tell(heading, alarm, ...content) {
  $("reader").hidden = true;
  shown = statusLine.textContent = "";
  say(heading, alarm, ...content);
}

const again = (how) => el("button", { type: "button", className: "quiet", onclick: () => how() }, "Try again");

function problem(reply, detail) {
  if (reply.status === 401) { tell("", true); return askKey(render); }
  if (reply.status === 404) return tell("Not found", true, el("p", {}, detail), el("p", {}, el("a", { href: "/" }, "Search")));
  if (reply.status !== 503) return tell("Search failed", true, el("p", {}, detail), again(render));
  let left = Number(reply.headers.get("retry-after")) || 1;
  const text = el("p", {});
  tell("The server is busy", true, text, again(render));
  const tick = () => {
    text.textContent = `Retrying in ${left} s.`;
    if (left-- > 0) waking = setTimeout(tick, 1000); else render();
  };
  tick();
}

/* Poll until the server is back, then ask again. */
function gone() {
  tell("The server is not responding", true, el("p", {}, "It may have stopped. Your search will be repeated when the server is back."), again(start));
  const look = () => fetch("/health").then(start, () => { waking = setTimeout(look, 2000); });
  waking = setTimeout(look, 2000);
}
