/* Learning: start it, follow it, and go back to an earlier version of the model. */
const [learnButton, learned] = ["learn", "learned"].map($);
const PERIOD = 1000;
let following = 0;

async function showLearning() {
  try {
    const [now, { versions }] = await Promise.all([ask("/learn"), ask("/versions")]);
    listVersions(versions, now.state === "running");
    follow(now);
  } catch (error) { tell(error.message, true); }
}

function tell(text, alarm = false) {
  learned.textContent = text;
  learned.className = alarm ? "alarm" : "";
}

/* Show where learning is; while it runs, look again. */
function follow(now) {
  clearTimeout(following);
  const running = now.state === "running";
  learnButton.disabled = running;
  document.querySelectorAll("#versions button").forEach((button) => { button.disabled = running; });
  tell(running ? `Learning: ${now.line}` : now.result, now.state === "failed");
  if (running) following = setTimeout(look, PERIOD);
}

async function look() {
  try {
    const now = await ask("/learn");
    if (now.state === "running") follow(now); else showLearning();
  } catch (error) {
    tell(error.message, true);
    following = setTimeout(look, PERIOD);
  }
}

async function learn() {
  await saving;
  try { follow(await ask("/learn", {})); } catch (error) { tell(error.message, true); }
}

function listVersions(versions, busy) {
  $("versions").replaceChildren(...versions.toReversed().map((each) => {
    const facts = [new Date(each.time).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })];
    if (each.queries) facts.push(`learned from ${each.queries.toLocaleString("en")} queries`);
    if (each.gain !== null) facts.push(`nDCG@20 ${each.gain < 0 ? "−" : "+"}${Math.abs(each.gain).toFixed(3)}`);
    const back = el("button", { type: "button", className: "quiet", disabled: busy, onclick: () => rollback(each.number) }, `Back to version ${each.number}`);
    return el("li", {}, el("div", {}, `Version ${each.number}${each.current ? ", in use" : ""}`), el("div", { className: "meta" }, facts.join(" · ")), each.current ? null : back);
  }));
}

async function rollback(number) {
  learnButton.disabled = true;
  tell(`Going back to version ${number} …`);
  try {
    const { versions } = await ask("/rollback", { number });
    listVersions(versions, false);
    tell(`Version ${number} is in use again, as version ${versions.at(-1).number}.`);
  } catch (error) { tell(error.message, true); }
  learnButton.disabled = false;
}

learnButton.addEventListener("click", learn);
start();
