// The form that makes a study. What is wrong with it, the service says; here it is shown.

import { address, post } from "./service.js";

const form = document.getElementById("create");
const summary = document.getElementById("create-error");

function asked() {
  const { name, actions, behavior, lowest, highest, wait, unit, confidence } = form.elements;
  const missing = form.elements.default;
  return {
    name: name.value.trim(),
    actions: actions.value.split("\n").map((line) => line.trim()).filter((line) => line !== ""),
    behavior: behavior.value,
    reward_range: [lowest.valueAsNumber, highest.valueAsNumber],
    reward_wait: wait.valueAsNumber * Number(unit.value),
    confidence: confidence.valueAsNumber / 100,
    ...(missing.value === "" ? {} : { default_reward: missing.valueAsNumber }),
  };
}

function place(field) {
  return [...form.querySelectorAll("[data-field]")].find(
    (each) => field === each.dataset.field || field.startsWith(`${each.dataset.field}.`),
  );
}

function clear() {
  summary.textContent = "";
  for (const error of form.querySelectorAll("[data-field] .error")) error.textContent = "";
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}

function ordinal(field) {
  const found = /^actions\.(\d+)/.exec(field);
  return found === null ? "" : `action ${Number(found[1]) + 1}: `;
}

function explain(told) {
  const placed = [];
  const others = [];
  for (const { field, message } of told.fields ?? []) {
    const where = place(field);
    if (where === undefined) {
      others.push(`${field}: ${message}`);
      continue;
    }
    const error = where.querySelector(".error");
    error.textContent += `${error.textContent && "; "}${ordinal(field)}${message}`;
    where.querySelector("input, textarea").setAttribute("aria-invalid", "true");
    placed.push(where);
  }
  summary.textContent = [`The study was not created: ${told.message || told.error}`, ...others].join(" · ");
  if (placed.length === 0) return;
  placed[0].closest("details.more")?.setAttribute("open", "");
  placed[0].querySelector("input, textarea").focus();
}

async function create(event) {
  event.preventDefault();
  clear();
  const study = asked();
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  const told = await post("v1/studies", study);
  button.disabled = false;
  if (told.error === undefined) location.assign(address(`studies/${encodeURIComponent(study.name)}`));
  else explain(told);
}

export function listenToForm() {
  form.addEventListener("submit", create);
}
