// Keeps a page up to date: asks for it again and puts in the parts that have changed. Works without; see the refresh
// in the page's head. Also puts a button beside every command that can be copied.
"use strict";

const SOON = 1200, LATER = 8000;
const main = document.querySelector("main");
const announce = document.getElementById("announce");
const connection = document.getElementById("connection");
const last = new Map();  // what the service sent for each part
for (const part of document.querySelectorAll("[data-part]")) last.set(part.id, part.innerHTML);

function isBusy() {
  return main.dataset.live === "yes" || document.querySelector("[data-busy]") !== null;
}

function fits(root) {
  return new Map([...root.querySelectorAll("[data-fit]")].map(
    row => [row.dataset.fit, row.dataset.state === "running" ? row.dataset.phase : row.dataset.state]));
}

// Where the focus is, so that it can be put back into new content.
function focused(part) {
  const active = document.activeElement;
  if (!part.contains(active) || active === part) return null;
  const same = [...part.querySelectorAll(active.tagName)];
  const href = active.getAttribute("href");
  return href ? `${active.tagName.toLowerCase()}[href="${CSS.escape(href)}"]` : same.indexOf(active);
}

function refocus(part, place, tag) {
  if (place === null) return;
  const found = typeof place === "string" ? part.querySelector(place) : part.querySelectorAll(tag)[place];
  if (found) found.focus({preventScroll: true});
}

function put(part, fresh) {
  if (last.get(part.id) === fresh.innerHTML) return false;
  last.set(part.id, fresh.innerHTML);
  const tag = document.activeElement ? document.activeElement.tagName : "";
  const place = focused(part);
  const open = [...part.querySelectorAll("details")].map(d => d.open);
  part.replaceChildren(...fresh.cloneNode(true).childNodes);
  if (fresh.dataset.busy) part.dataset.busy = fresh.dataset.busy; else delete part.dataset.busy;
  part.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
  addCopyButtons(part);
  refocus(part, place, tag);
  return true;
}

async function look() {
  if (document.hidden) return;
  let answer;
  try {
    answer = await fetch(location.href, {headers: {Accept: "text/html"}, cache: "no-store"});
  } catch {
    connection.textContent = " · no connection to the service, trying again";
    return;
  }
  if (answer.redirected) { location.reload(); return; }  // the session has ended
  connection.textContent = answer.ok ? "" : " · the service cannot answer now, trying again";
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const wanted = [...page.querySelectorAll("[data-part]")];
  if (page.title !== document.title || wanted.some(part => !document.getElementById(part.id))) {
    location.reload();  // another page by now, such as the first study of an empty service
    return;
  }
  const before = fits(document);
  for (const fresh of wanted) put(document.getElementById(fresh.id), fresh);
  const told = [];
  for (const [name, state] of fits(document)) {
    if (before.get(name) !== state) told.push(`fit ${name.split("/")[1]}: ${state}`);
  }
  if (told.length) announce.textContent = told.join(", ");
  main.dataset.live = page.querySelector("main").dataset.live || "";
}

function addCopyButtons(root) {
  if (!navigator.clipboard) return;
  for (const command of root.querySelectorAll(".command:not(.copyable)")) {
    const button = document.createElement("button");
    const text = command.textContent;
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the command");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      announce.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    command.classList.add("copyable");
    command.append(button);
  }
}

async function watch() {
  await new Promise(done => setTimeout(done, isBusy() ? SOON : LATER));
  await look();
  watch();
}

addCopyButtons(document);
if (last.size) watch();
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
