// One episode over the REST API, played by a person in the model's place. The page's address names its task and seed, so
// that it can be played again.

import { byId, card, componentFacts, facts, fail, make, number, success } from "./show.js";

const base = new URL("../", document.baseURI);
/** What the page's address named when it was opened, by the fields' ids. */
const asked = new URLSearchParams(location.hash.split("?")[1] ?? "");
let episode = null; // { environment, id, step, total, components, observation, done }

async function call(method, path, body) {
  const headers = {};
  if (byId("key").value) headers.authorization = `Bearer ${byId("key").value}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(new URL(path, base), { method, headers, body: body && JSON.stringify(body) }).catch(() => {
    throw new Error("The service cannot be reached. What you wrote is still here; try again.");
  });
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  const fault = answer?.error;
  throw new Error(fault ? `${fault.code}: ${fault.message}` : `The service answered with HTTP ${response.status}.`);
}

let last = Promise.resolve();
let focused = null; // when the work that runs was begun

/** Run `work` after what has been begun before, with the page's buttons held; its failure is shown. */
function busy(work) {
  last = last.then(async () => {
    focused = document.activeElement;
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
  });
  return last;
}

export function connect() {
  return busy(async () => {
    offer("environment", await call("GET", "list_environments"));
    await showSplits();
  });
}

/** Lead to the element, unless a person has gone elsewhere while an answer was on its way. */
function leadTo(element) {
  if ([focused, document.body].includes(document.activeElement)) element.focus();
}

/** Offer `names`, without taking from a person what is chosen already, be it while they were on their way. */
function offer(id, names) {
  const chosen = byId(id).value || asked.get(id);
  byId(id).replaceChildren(...names.map((name) => make("option", {}, name)));
  if (names.includes(chosen)) byId(id).value = chosen;
}

async function showSplits() {
  const environment = byId("environment").value;
  const splits = await call("GET", `${environment}/splits`);
  if (byId("environment").value !== environment) return; // another was chosen meanwhile, and asks for its own
  offer("split", splits.map(({ name }) => name));
  await showCount();
}

async function showCount() {
  const split = byId("split").value;
  const { num_tasks: count } = await call("POST", `${byId("environment").value}/num_tasks`, { split });
  byId("task").placeholder = `0 to ${count - 1}, or id`;
}

async function begin() {
  const task = byId("task").value.trim();
  const request = { split: byId("split").value };
  if (/^\d+$/.test(task)) request.index = Number(task);
  else if (task !== "") request.task_id = task;
  if (byId("seed").value !== "") request.seed = Number(byId("seed").value);
  await reset(byId("environment").value, request);
}

async function reset(environment, request) {
  const written = byId("text").value;
  const answer = await call("POST", `${environment}/reset`, request);
  if (episode !== null) leave(episode);
  const { episode_id: id, seed, task_id: task } = answer;
  episode = { environment, id, seed, task, split: request.split, total: 0, components: {} };
  history.replaceState(null, "", `#play?${new URLSearchParams({ environment, split: request.split, task, seed })}`);
  byId("welcome").hidden = true;
  byId("conversation").replaceChildren();
  clear(written);
  take(answer);
  episode.tools = answer.observation.tools ?? [];
  draw();
}

const again = ({ environment, split, task, seed }) => reset(environment, { split, task_id: task, seed });

/** Nobody waits for it: the service also ends an episode by itself, some time after the last request. */
function leave({ environment, id }) {
  call("DELETE", `${environment}/episodes/${encodeURIComponent(id)}`).catch(() => null);
}

/** Empty the box, unless the next turn has been begun there meanwhile. */
function clear(written) {
  if (byId("text").value === written) byId("text").value = "";
}

async function act() {
  const text = byId("text").value;
  if (!text.trim() || episode.done) return;
  const { environment, id, step } = episode;
  const answer = await call("POST", `${environment}/step`, { episode_id: id, step, action: { text } });
  byId("conversation").append(card({ role: "assistant", content: text }, `reward ${number(answer.reward)}`));
  clear(text);
  take(answer);
  draw();
}

async function cutOff() {
  if (episode.done) return;
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

/** What a model would write to call a tool, with its arguments left open. */
function callOf({ name, parameters }) {
  const open = Object.fromEntries(Object.keys(parameters?.properties ?? {}).map((argument) => [argument, null]));
  return `<tool_call>\n${JSON.stringify({ name, arguments: open })}\n</tool_call>\n`;
}

function toolDetails({ function: tool }) {
  const insert = make("button", { type: "button" }, "Write a call");
  insert.addEventListener("click", () => {
    byId("text").value += callOf(tool);
    byId("text").focus();
  });
  return make(
    "details",
    {},
    make("summary", {}, tool.name),
    // Elsewhere a model says in words what it does: the prompt has them.
    episode.environment === "toolcall" ? insert : null,
    make("pre", { tabIndex: 0 }, `${tool.description}\n${JSON.stringify(tool.parameters, null, 2)}`),
  );
}

function endCard(played) {
  const button = make("button", { type: "button" }, "Play it again");
  button.addEventListener("click", () => busy(() => again(played)));
  const { info, total } = played;
  const said = make("span", {}, `Over: ${info.stop_reason ?? "done"}, `, success(info.success), `, return ${number(total)}.`);
  return make("li", { className: "message end" }, said, button);
}

function draw() {
  const { info } = episode;
  const tools = (episode.tools ?? []).map(toolDetails);
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
  if (episode.done) {
    const end = endCard(episode);
    byId("conversation").append(end);
    leadTo(end.querySelector("button"));
  } else {
    leadTo(byId("text"));
  }
  (episode.done ? byId("conversation").lastElementChild : byId("act")).scrollIntoView({ block: "nearest" });
}

export function wire() {
  for (const id of ["task", "seed"]) byId(id).value ||= asked.get(id) ?? "";
  const on = (id, event, work) => byId(id).addEventListener(event, (fired) => { fired.preventDefault(); busy(work); });
  on("environment", "change", showSplits);
  on("split", "change", showCount);
  on("begin", "submit", begin);
  on("act", "submit", act);
  on("truncate", "click", cutOff);
  byId("access").addEventListener("submit", (fired) => { fired.preventDefault(); connect(); });
  byId("text").addEventListener("keydown", (pressed) => {
    // By its button, which is held while an answer is on its way: a second press would send what is half written then.
    if (pressed.key === "Enter" && (pressed.ctrlKey || pressed.metaKey)) byId("send").click();
  });
  byId("key").addEventListener("change", connect);
}
