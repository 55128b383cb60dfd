// The page of one study.

import { setFragment, setText } from "./changes.js";
import { address, hasToken, post, states } from "./service.js";

const study = decodeURIComponent(location.pathname.split("/").pop());
const path = `v1/studies/${encodeURIComponent(study)}`;
const part = (id) => document.getElementById(id);

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function command(example) {
  return [
    `curl ${address(`${path}/events`)}`,
    "-H 'content-type: application/json'",
    ...(hasToken() ? ["-H 'authorization: Bearer YOUR-TOKEN'"] : []),
    `-d ${quoted(JSON.stringify(example))}`,
  ].join(" \\\n  ");
}

function showVerdict(state) {
  part("verdict-card").className = `verdict ${state.style}`;
  setText(part("sign"), state.sign);
  setText(part("word"), state.word);
  setText(part("why"), state.why);
  part("badge").hidden = !state.archived;
  part("end").hidden = state.archived;
  document.title = `${state.sign} ${study} · understudy`;
}

function showFragments(fragments) {
  for (const element of document.querySelectorAll("[data-fragment]")) {
    const html = fragments[element.dataset.fragment];
    setFragment(element, html);
    (element.closest("[data-section]") ?? element).hidden = html === "";
  }
}

function show(state) {
  showVerdict(state);
  showFragments(state.fragments);
  part("start").hidden = state.example === null;
  if (state.example !== null) setText(part("example"), command(state.example));
  part("loaded").hidden = false;
}

function listenToArchive() {
  const dialog = part("confirm");
  part("archive").addEventListener("click", () => {
    part("archive-error").textContent = "";
    dialog.showModal();
  });
  part("keep").addEventListener("click", () => dialog.close());
  part("archive-now").addEventListener("click", async () => {
    const told = await post(`${path}/archive`, {});
    if (told.error === undefined) dialog.close();
    else part("archive-error").textContent = `It was not archived: ${told.message || told.error}`;
  });
}

part("name").textContent = study;
document.title = `${study} · understudy`;
listenToArchive();
for await (const state of states(`${path}/live`)) show(state);
part("missing").hidden = false;
