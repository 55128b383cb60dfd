// The page of all studies.

import { setText } from "./changes.js";
import { listenToForm } from "./create.js";
import { address, states } from "./service.js";

const shown = new Map();
const lists = {
  current: document.getElementById("studies"),
  archived: document.getElementById("archived"),
};

function made(tag, className, ...children) {
  const element = document.createElement(tag);
  element.className = className;
  element.append(...children);
  return element;
}

function card(study) {
  const parts = {
    sign: made("span", "sign"),
    link: made("a", "name"),
    word: made("strong", "word"),
    why: made("span", "why"),
    numbers: made("p", "numbers"),
  };
  parts.sign.setAttribute("aria-hidden", "true");
  parts.link.href = address(`studies/${encodeURIComponent(study)}`);
  parts.link.textContent = study;
  const heading = made("h3", "", parts.link);
  const verdict = made("p", "said", parts.word, parts.why);
  const item = made("li", "study", parts.sign, made("div", "", heading, verdict), parts.numbers);
  return { item, ...parts, said: null };
}

function update(study) {
  const known = shown.has(study.study);
  if (!known) shown.set(study.study, card(study.study));
  const parts = shown.get(study.study);
  parts.item.className = `study ${study.style}`;
  setText(parts.sign, study.sign);
  setText(parts.word, study.word);
  setText(parts.why, `: ${study.why}`);
  setText(parts.numbers, study.numbers);
  const list = study.archived ? lists.archived : lists.current;
  if (parts.item.parentElement !== list) list.append(parts.item);
  if (known && parts.said !== study.word) { // numbers change all the time
    setText(document.getElementById("news"), `${study.study}: ${study.verdict}`);
  }
  parts.said = study.word;
}

listenToForm();
let first = true;
for await (const { studies } of states("v1/live")) {
  studies.forEach(update);
  const current = studies.filter((study) => !study.archived).length;
  document.getElementById("nothing").hidden = current > 0;
  document.getElementById("old").hidden = current === studies.length;
  document.getElementById("loaded").hidden = false;
  if (first) document.getElementById("new").open = studies.length === 0;
  first = false;
}
