// What the pages ask of the service: requests with the token of this tab, and the newest state.

const ROOT = new URL("../", import.meta.url);
const KEPT = "understudy.token";
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 30_000;
const LONGEST_SILENCE = 45_000; // the service speaks every 15 seconds
const forms = {
  section: document.getElementById("token"),
  form: document.getElementById("token-form"),
  value: document.getElementById("token-value"),
  error: document.getElementById("token-error"),
  forget: document.getElementById("forget"),
  loaded: document.getElementById("loaded"),
};

export function address(path) {
  return new URL(path, ROOT).href;
}

export function hasToken() {
  return sessionStorage.getItem(KEPT) !== null;
}

function ask(path, { headers = {}, ...options } = {}) {
  const token = sessionStorage.getItem(KEPT);
  const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
  return fetch(address(path), {
    ...options,
    headers: { ...headers, ...authorization },
    cache: "no-store",
    credentials: "omit",
  });
}

/** Sends JSON; gives what was answered, with `error` and `message` if it was refused. */
export async function post(path, body) {
  try {
    const response = await ask(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (response.ok) return {};
    return { error: String(response.status), message: "", ...(await told(response)) };
  } catch {
    return { error: "unreachable", message: "the service does not answer; nothing was changed" };
  }
}

async function told(response) {
  try {
    return await response.json();
  } catch {
    return { message: `the service answered ${response.status}` };
  }
}

/** Every state that the service tells, for ever; ends only if there is nothing to watch. */
export async function* states(path) {
  for (let failures = 0; ; failures += 1) {
    await visible();
    const listening = new AbortController();
    const hide = () => document.hidden && listening.abort();
    document.addEventListener("visibilitychange", hide);
    let lost = "";
    try {
      const response = await ask(path, {
        headers: { accept: "text/event-stream" },
        signal: listening.signal,
      });
      if (response.status === 404) {
        say("lost", "Nothing to watch");
        return;
      }
      if (response.status === 401) {
        await newToken();
        failures = -1;
        continue;
      }
      if (!response.ok) throw new Error((await told(response)).message);
      for await (const state of received(response.body, listening)) {
        failures = 0;
        say("live", "Live");
        forms.forget.hidden = !hasToken();
        yield state;
      }
    } catch (error) {
      lost = error instanceof TypeError || error.name === "AbortError" ? "" : `: ${error.message}`;
    } finally {
      document.removeEventListener("visibilitychange", hide);
      listening.abort();
    }
    if (document.hidden) continue; // its connection was given to those who are looked at
    say("lost", `Connection lost, trying again${lost}`);
    await pause(Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** failures) * (0.75 + Math.random() / 2));
  }
}

async function* received(body, listening) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => listening.abort(), LONGEST_SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n").filter((line) => line.startsWith("data: "));
      if (lines.length > 0) yield JSON.parse(lines.map((line) => line.slice(6)).join("\n"));
    }
  }
}

function say(state, words) {
  const status = document.getElementById("connection");
  status.dataset.state = state;
  if (status.textContent !== words) status.textContent = words;
}

function newToken() {
  say("waiting", "Waiting for a token");
  const refused = hasToken();
  sessionStorage.removeItem(KEPT);
  forms.error.textContent = refused ? "This token is not accepted: type another." : "";
  forms.value.value = "";
  forms.section.hidden = false;
  forms.loaded.hidden = true;
  forms.forget.hidden = true;
  forms.value.focus();
  return new Promise((resolve) => {
    forms.form.onsubmit = (event) => {
      event.preventDefault();
      const typed = forms.value.value.trim();
      if (typed === "") return;
      sessionStorage.setItem(KEPT, typed);
      forms.section.hidden = true;
      resolve();
    };
  });
}

function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
}

function pause(milliseconds) {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
  });
}

forms.forget.addEventListener("click", () => {
  sessionStorage.removeItem(KEPT);
  location.reload();
});
