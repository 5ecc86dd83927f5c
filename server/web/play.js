// One episode over the REST API, played by a person in the model's place.

import { byId, card, componentFacts, facts, fail, make, number, success } from "./show.js";

const base = new URL("../", document.baseURI);
let episode = null; // { environment, id, step, total, components, observation, done }

async function call(method, path, body) {
  const headers = {};
  if (byId("key").value) headers.authorization = `Bearer ${byId("key").value}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(new URL(path, base), { method, headers, body: body && JSON.stringify(body) });
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  const fault = answer?.error;
  throw new Error(fault ? `${fault.code}: ${fault.message}` : `The service answered with HTTP ${response.status}.`);
}

/** Run `work` with the page's buttons held; its failure is shown. */
async function busy(work) {
  const buttons = document.querySelectorAll("#play button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    fail(null);
    await work();
  } catch (error) {
    fail(error);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

export async function connect() {
  await busy(async () => {
    const names = await call("GET", "list_environments");
    byId("environment").replaceChildren(...names.map((name) => make("option", {}, name)));
    await showSplits();
  });
}

async function showSplits() {
  const splits = await call("GET", `${byId("environment").value}/splits`);
  byId("split").replaceChildren(...splits.map(({ name }) => make("option", {}, name)));
  await showCount();
}

async function showCount() {
  const split = byId("split").value;
  const { num_tasks: count } = await call("POST", `${byId("environment").value}/num_tasks`, { split });
  byId("of").textContent = `of ${count}`;
  byId("index").max = String(count - 1);
}

async function begin() {
  if (episode !== null) await leave();
  const environment = byId("environment").value;
  const request = { split: byId("split").value };
  if (byId("index").value !== "") request.index = Number(byId("index").value);
  if (byId("seed").value !== "") request.seed = Number(byId("seed").value);
  const answer = await call("POST", `${environment}/reset`, request);
  episode = { environment, id: answer.episode_id, total: 0, components: {}, seed: answer.seed, task: answer.task_id };
  byId("conversation").replaceChildren();
  byId("text").value = "";
  take(answer, "");
  episode.tools = answer.observation.tools ?? [];
  draw();
  byId("text").focus();
}

async function leave() {
  const { environment, id } = episode;
  episode = null;
  // The service also ends it by itself, some time after the last request.
  await call("DELETE", `${environment}/episodes/${encodeURIComponent(id)}`).catch(() => null);
}

async function act() {
  const text = byId("text").value;
  if (!text.trim()) return;
  const { environment, id, step } = episode;
  const answer = await call("POST", `${environment}/step`, { episode_id: id, step, action: { text } });
  byId("conversation").append(card({ role: "assistant", content: text }, `reward ${number(answer.reward)}`));
  byId("text").value = "";
  take(answer);
  draw();
}

async function cutOff() {
  const { environment, id, step } = episode;
  take(await call("POST", `${environment}/truncate`, { episode_id: id, step, reason: "max_turns" }));
  draw();
}

function take(answer) {
  const { info, messages } = answer.observation;
  byId("conversation").append(...messages.map((message) => card(message)));
  episode.step = answer.step_count;
  episode.done = answer.done;
  episode.info = info;
  episode.total += answer.reward ?? 0;
  for (const [name, value] of Object.entries(info.reward_components ?? {})) {
    episode.components[name] = (episode.components[name] ?? 0) + value;
  }
}

function draw() {
  const { info } = episode;
  const tools = (episode.tools ?? []).map(({ function: tool }) =>
    make("details", {}, make("summary", {}, tool.name), make("pre", {}, `${tool.description}\n${JSON.stringify(tool.parameters, null, 2)}`)));
  byId("figures").replaceChildren(
    ...[
      facts("Episode", [
        ["task", episode.task],
        ["seed", String(episode.seed)],
        ["turn", info.budget_remaining == null ? `${info.turn}` : `${info.turn}, ${info.budget_remaining} left`],
        ["return", number(episode.total)],
        ["success", success(info.success)],
        ["end", info.stop_reason ?? (episode.done ? "done" : "running")],
      ]),
      componentFacts("Reward components, summed", episode.components),
      tools.length > 0 ? make("section", {}, make("h2", {}, "Tools"), ...tools) : null,
    ].filter(Boolean),
  );
  byId("figures").hidden = false;
  byId("act").hidden = episode.done;
}

export function wire() {
  const on = (id, event, work) => byId(id).addEventListener(event, (fired) => { fired.preventDefault(); busy(work); });
  on("environment", "change", showSplits);
  on("split", "change", showCount);
  on("begin", "submit", begin);
  on("act", "submit", act);
  on("truncate", "click", cutOff);
  byId("text").addEventListener("keydown", (pressed) => {
    if (pressed.key === "Enter" && (pressed.ctrlKey || pressed.metaKey)) byId("act").requestSubmit();
  });
  byId("key").addEventListener("change", connect);
}
