// The page around <private-answer>: the token from the address, the language, and which scripts run.

import { LANGUAGES } from "./private-answer.js";

const element = document.createElement("private-answer");
const choice = document.querySelector("#language");
const about = document.querySelector("#about");

async function speak(language) {
  const texts = await (await fetch(`texts/${language}.json`, { referrerPolicy: "no-referrer" })).json();
  document.documentElement.lang = language;
  document.title = texts.page_title;
  choice.value = language;
  choice.hidden = false;
  choice.setAttribute("aria-label", texts.choose_language);
  about.querySelector("summary").textContent = texts.about_title;
  about.querySelector("p").textContent = texts.about_text;
  about.hidden = false;
}

function wantedLanguage() {
  const asked = new URLSearchParams(location.search).get("lang");
  return [asked, ...navigator.languages].map((l) => l?.slice(0, 2)).find((l) => LANGUAGES.includes(l)) ?? "en";
}

choice.addEventListener("change", () => {
  const address = new URL(location.href);
  address.searchParams.set("lang", choice.value);
  history.replaceState(null, "", address); // so that a reload speaks it too
  element.lang = choice.value;
  speak(choice.value);
});

addEventListener("hashchange", () => location.reload()); // another link in the same window
element.addEventListener("opened", ({ detail }) => {
  document.querySelector("#sender").textContent = detail.collector;
});

// The hashes that the browser has compared the scripts with, as sha256sum prints them.
for (const script of document.querySelectorAll("[integrity]")) {
  const bytes = Array.from(atob(script.integrity.slice("sha256-".length)), (c) => c.charCodeAt(0));
  const line = document.createElement("p");
  const code = document.createElement("code");
  line.className = "hashes";
  code.textContent = bytes.map((b) => b.toString(16).padStart(2, "0")).join("");
  line.append(`${script.getAttribute("href") ?? script.getAttribute("src")} SHA-256 `, code);
  about.append(line);
}

const language = wantedLanguage();
element.setAttribute("service", document.querySelector("meta[name=fairpremium-service]")?.content ?? "");
element.setAttribute("token", location.hash.slice(1));
element.lang = language;
speak(language);
document.querySelector("main").replaceChildren(element);
