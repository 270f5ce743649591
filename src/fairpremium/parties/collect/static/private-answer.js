// <private-answer service="https://third-party" token="..." lang="en"></private-answer>
//
// Asks one question, draws the report of the answer here, and sends the report alone. It asks whether the link is open
// before it draws; what was drawn is kept until it has arrived and never drawn again. The answer itself is in no
// request and in no storage. Without `service` the reports go to where this script comes from.
// It sends the event "sent" when the report has arrived. It draws into the page itself, so that the page's styles apply.

import { largestBelief, readChannel } from "./report.js";

export const LANGUAGES = ["en", "de", "fr", "es"];
const PATIENCE = 20_000; // milliseconds until a request counts as lost
const PAUSES = [1000, 3000, 9000]; // before it is tried again by itself
const DECLINED = null; // the report of somebody who prefers not to say

/** One personal link: what the service says about it, and the report that is kept until it has arrived. */
class Link {
  #kept; // also where the browser has no storage

  constructor(service, token) {
    this.base = service ? new URL("/collect/v1/", service) : new URL("v1/", import.meta.url);
    this.token = token;
    this.place = `fairpremium-report ${token}`;
  }

  /** {report: S, channel, attempt} if one was drawn, {sent: true} if it has arrived, else undefined. */
  get kept() {
    try {
      this.#kept ??= JSON.parse(sessionStorage.getItem(this.place)) ?? undefined;
    } catch {} // no storage
    return this.#kept;
  }

  keep(what) {
    this.#kept = what;
    try {
      sessionStorage.setItem(this.place, JSON.stringify(what));
    } catch {} // no storage: kept until the page is closed
  }

  forget() {
    this.#kept = undefined;
    try {
      sessionStorage.removeItem(this.place);
    } catch {} // no storage
  }

  open() {
    return this.#post("open", { token: this.token }, "open");
  }

  /** Keep a report, with the hash of its channel and a random text that tells our own repetitions from other people's. */
  keepReport(report, channel) {
    const attempt = Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
    this.keep({ report, channel, attempt });
  }

  send() {
    return this.#post("report", { token: this.token, ...this.kept }, "accepted");
  }

  async #post(name, body, field) {
    const response = await fetch(new URL(name, this.base), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: padded(body),
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
      signal: AbortSignal.timeout(PATIENCE),
    });
    const answer = response.ok ? await response.json() : null;
    if (typeof answer?.[field] !== "boolean") throw new Error("The service cannot answer now.");
    return answer;
  }
}

/** JSON of whole kilobytes: the length of an encrypted request does not tell which report it has, or that it has none. */
function padded(body) {
  const json = JSON.stringify(body);
  return json + " ".repeat(-new TextEncoder().encode(json).length & 1023);
}

/** What a person has read and agreed to. */
function asked({ channel, question, collector }) {
  return JSON.stringify([channel, question, collector]);
}

export class PrivateAnswer extends HTMLElement {
  static observedAttributes = ["lang"];
  #link;
  #study; // what the service says about the study
  #view = "loading";
  #texts;
  #busy = false;
  #begun = false;

  async connectedCallback() {
    if (this.#begun) return;
    this.#begun = true;
    this.#link = new Link(this.getAttribute("service"), this.getAttribute("token") ?? "");
    addEventListener("online", () => this.#view === "waiting" && this.#deliver());
    await this.#speak();
    await this.#begin();
  }

  attributeChangedCallback() {
    if (this.#begun) this.#speak();
  }

  // --- what happens ---

  async #begin() {
    if (this.#busy) return;
    const kept = this.#link.kept;
    if (!this.#link.token) return this.#show("closed");
    if (kept?.sent) return this.#show("sent");
    if (kept) return this.#deliver();
    this.#busy = true;
    try {
      this.#consider(await this.#link.open());
    } catch {
      this.#show("unreachable");
    } finally {
      this.#busy = false;
    }
  }

  /** Ask the question if the link is open and its channel protects. */
  #consider(study) {
    if (!study.open) return this.#show("closed");
    this.#study = study;
    try {
      readChannel(study.channel);
    } catch {
      return this.#show("unprotected");
    }
    this.dispatchEvent(new CustomEvent("opened", { bubbles: true, detail: { collector: study.collector } }));
    this.#show("ask");
  }

  async #submit(form) {
    if (this.#busy) return; // a second click
    const chosen = form.elements.answer.value; // a position, or "" for nothing, or "declined"
    const missing = !chosen ? "answer" : chosen !== "declined" && !form.elements.consent.checked ? "consent" : null;
    this.#complain(form, missing);
    if (missing) return;
    this.#busy = true;
    this.#wait(form, true);
    try {
      const study = await this.#link.open(); // the link may have been used elsewhere since the page was opened
      if (!study.open) return this.#show("closed");
      if (asked(study) !== asked(this.#study)) {
        this.#consider(study);
        this.querySelector("form button")?.focus(); // the one that had the focus is gone
        return this.#tell("changed");
      }
    } catch {
      this.#wait(form, false);
      return this.#tell("no_connection");
    } finally {
      this.#busy = false;
    }
    try {
      const channel = readChannel(this.#study.channel);
      const report = chosen === "declined" ? DECLINED : channel.privatize(channel.groups[chosen]);
      this.#link.keepReport(report, this.#study.channel.sha256);
    } catch {
      return this.#show("unprotected");
    }
    form.reset();
    await this.#deliver();
  }

  /** Send the report that is kept, again and again until the service has answered. */
  async #deliver() {
    if (this.#busy) return;
    this.#busy = true;
    this.#show("sending");
    const { report } = this.#link.kept;
    try {
      for (const pause of [...PAUSES, null]) {
        try {
          const { accepted } = await this.#link.send();
          if (accepted) this.#link.keep({ sent: true });
          else this.#link.forget();
          this.#show(accepted ? "sent" : "closed", { report });
          if (accepted) this.dispatchEvent(new CustomEvent("sent", { bubbles: true }));
          return;
        } catch {
          if (pause === null || !navigator.onLine) break;
          await new Promise((done) => setTimeout(done, pause));
        }
      }
      this.#show("waiting");
    } finally {
      this.#busy = false;
    }
  }

  // --- what is shown ---

  async #speak() {
    const wanted = this.lang || navigator.languages.map((l) => l.slice(0, 2)).find((l) => LANGUAGES.includes(l));
    const language = LANGUAGES.includes(wanted) ? wanted : "en";
    const response = await fetch(new URL(`texts/${language}.json`, import.meta.url), { referrerPolicy: "no-referrer" });
    this.#texts = await response.json();
    this.language = language;
    const form = this.querySelector("form");
    const chosen = form && { answer: form.elements.answer.value, consent: form.elements.consent.checked };
    this.#show(this.#view, this.#details, false);
    if (!chosen) return;
    const fresh = this.querySelector("form");
    fresh.elements.answer.value = chosen.answer;
    fresh.elements.consent.checked = chosen.consent;
  }

  #details = {};

  #show(view, details = {}, focus = true) {
    const isNew = view !== this.#view;
    this.#view = view;
    this.#details = details;
    if (!this.#texts) return;
    const parts = view === "ask" ? this.#ask() : this.#message(view, details);
    const box = node("div", { class: `view ${view}`, lang: this.language }, ...parts);
    this.replaceChildren(box);
    this.dataset.view = view;
    if (isNew && focus && view !== "ask") box.querySelector("h1").focus();
  }

  /** Everything but the question: a heading, a text, and what can be done. */
  #message(view, { report }) {
    const t = this.#texts;
    const again = { waiting: () => this.#deliver(), unreachable: () => this.#begin() }[view];
    const state = view === "loading" || view === "sending" ? { role: "status" } : {};
    return [
      node("h1", { tabindex: "-1", ...state }, t[`${view}_title`]),
      ...(t[`${view}_text`] ?? []).map((line) => node("p", {}, this.#fill(line))),
      view === "sent" && report !== undefined && node("details", {},
        node("summary", {}, t.sent_what),
        node("p", {}, report === DECLINED ? t.sent_nothing : this.#fill(t.sent_report, { report: this.#name(report) }))),
      again && node("p", {}, node("button", { type: "button", onclick: again }, t.again)),
    ];
  }

  #ask() {
    const t = this.#texts;
    const { channel, closes } = this.#study;
    const date = closes && new Date(closes).toLocaleDateString(this.language, { dateStyle: "long" });
    return [
      node("h1", { tabindex: "-1" }, t.ask_title),
      node("p", { class: "lead" }, this.#fill(t.asked_by),
        date && ` ${this.#fill(t.closes, { date })}`),
      node("h2", {}, t.why),
      node("p", this.#spoken(), this.#words().purpose),
      node("h2", {}, t.how),
      this.#steps(channel),
      this.#picture(channel),
      node("h2", {}, t.who),
      node("dl", {}, ...t.who_gets.flatMap(([who, what]) =>
        [node("dt", {}, this.#fill(who)), node("dd", {}, this.#fill(what))])),
      this.#form(),
    ];
  }

  #steps(channel) {
    const t = this.#texts;
    const { keep } = readChannel(channel);
    const draw = keep
      ? this.#fill(t.step_draw_keep, { keep: this.#percent(Math.ceil((100 * keep.a) / keep.total)) })
      : t.step_draw_other;
    return node("ol", { class: "steps" },
      ...[[t.step_answer, t.step_answer_more], [t.step_draw, draw], [t.step_send, t.step_send_more]].map(
        ([what, more]) => node("li", {}, node("strong", {}, what), " ", more)));
  }

  /** Two bars: how sure an observer can be before the report, and at most after it. */
  #picture(channel) {
    const t = this.#texts;
    const most = largestBelief(channel, 50);
    const values = { before: this.#percent(50), after: this.#percent(most) };
    const bar = (text, value) => [
      node("span", {}, text),
      drawing("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none" },
        drawing("rect", { width: 100, height: 8, class: "track" }),
        drawing("rect", { width: value, height: 8, class: "most" }),
        drawing("rect", { width: 50, height: 8, class: "before" })),
      node("b", {}, this.#percent(value)),
    ];
    return node("figure", {},
      node("div", { class: "bars", "aria-hidden": "true" }, ...bar(t.bar_before, 50), ...bar(t.bar_after, most)),
      node("figcaption", {}, this.#fill(t.picture, values)));
  }

  #form() {
    const t = this.#texts;
    const words = this.#words();
    const choice = (value, text, attributes, ...more) =>
      node("label", { class: "choice" },
        node("input", { type: "radio", name: "answer", value, autocomplete: "off" }),
        node("span", attributes, text, ...more));
    const submit = (event) => {
      event.preventDefault();
      this.#submit(event.currentTarget);
    };
    return node("form", { autocomplete: "off", novalidate: "", onsubmit: submit },
      node("fieldset", { "aria-describedby": "answer-error" },
        node("legend", {}, node("h2", this.#spoken(), words.question)),
        ...words.groups.map((group, position) => choice(position, group, this.#spoken())),
        choice("declined", t.decline, {}, node("small", {}, t.decline_more)),
        node("p", { class: "error", id: "answer-error" })),
      node("label", { class: "consent" },
        node("input", { type: "checkbox", name: "consent", autocomplete: "off", "aria-describedby": "consent-error" }),
        node("span", {}, this.#fill(t.consent))),
      node("p", { class: "error", id: "consent-error" }),
      node("p", {}, node("button", {}, t.send)),
      node("p", { role: "status", class: "quiet" }));
  }

  #complain(form, missing) {
    for (const name of ["answer", "consent"]) {
      form.querySelector(`#${name}-error`).textContent = name === missing ? this.#texts[`missing_${name}`] : "";
    }
    const first = { answer: () => form.elements.answer[0], consent: () => form.elements.consent }[missing]?.();
    first?.focus();
  }

  #wait(form, busy) {
    for (const input of form.querySelectorAll("input")) input.disabled = busy;
    form.querySelector("button").setAttribute("aria-disabled", busy); // one that is disabled would lose the focus
    this.#tell(busy ? "sending_title" : null);
  }

  #tell(name) {
    const status = this.querySelector("form [role=status]");
    if (status) status.textContent = name ? this.#texts[name] : "";
  }

  /** What the study says in the person's language, or else in its first one. */
  #words() {
    const { texts, language } = this.#study.question;
    return texts[this.language] ?? texts[language];
  }

  /** The attribute lang where that is another language than the page's. */
  #spoken() {
    const { texts, language } = this.#study.question;
    return texts[this.language] ? {} : { lang: language };
  }

  /** The words for a report. */
  #name(report) {
    const position = this.#study?.channel.groups.indexOf(report) ?? -1;
    return position < 0 ? [report].flat().join(", ") : this.#words().groups[position];
  }

  #fill(text, values = {}) {
    const known = {
      collector: this.#study?.collector,
      service: this.#link.base.host,
      ...values,
    };
    return text.replace(/\{(\w+)\}/g, (_, name) => known[name]);
  }

  #percent(value) {
    return (value / 100).toLocaleString(this.language, { style: "percent" });
  }
}

function node(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function drawing(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child || child === 0));
  return element;
}

customElements.define("private-answer", PrivateAnswer);
