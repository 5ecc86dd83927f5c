// Episodes from a JSON Lines file on the reader's disk. Nothing of it is sent anywhere.

import { byId, card, componentFacts, facts, fail, make, number, success } from "./show.js";

const PAGE = 200;
let episodes = []; // { line, row, search }
let found = [];
let page = 0;

/** The names under which evaluation, training and the wire itself write the same things. */
const first = (row, ...names) => names.map((name) => row[name]).find((value) => value !== undefined && value !== null);
const messagesOf = (row) => [first(row, "transcript", "messages") ?? []].flat();
const returnOf = (row) => first(row, "episode_return", "total_reward", "return", "reward");
const componentsOf = (row) => first(row, "components", "reward_components");
const turnsOf = (row) => first(row, "turns", "step_count");

async function load() {
  const [file] = byId("file").files;
  if (!file) return;
  const read = [];
  const broken = [];
  const lines = (await file.text()).split("\n");
  if (byId("file").files[0] !== file) return; // another was chosen while this one was read
  fail(null);
  lines.forEach((text, line) => {
    if (!text.trim()) return;
    try {
      const row = JSON.parse(text);
      if (typeof row !== "object" || row === null || Array.isArray(row)) throw new TypeError("no object");
      if ((row.kind ?? "episode") !== "episode") return; // a header, such as the settings of an evaluation
      read.push({ line: line + 1, row, search: text.toLowerCase() });
    } catch {
      broken.push(line + 1);
    }
  });
  episodes = read;
  if (broken.length > 0) fail(`No episode on ${broken.length} line(s), the first is line ${broken[0]}.`);
  byId("hint").hidden = episodes.length > 0;
  byId("episode").hidden = true;
  search();
}

function search() {
  const words = byId("filter").value.toLowerCase();
  const outcome = byId("outcome").value;
  const fits = ({ row, search: text }) => {
    if (words && !text.includes(words)) return false;
    if (outcome === "fault") return Boolean(row.fault);
    return outcome === "" || String(row.success) === outcome;
  };
  found = episodes.filter(fits);
  page = 0;
  draw();
}

function draw() {
  const start = page * PAGE;
  const shown = found.slice(start, start + PAGE);
  byId("episodes").hidden = episodes.length === 0;
  byId("episodes").tBodies[0].replaceChildren(...shown.map(tableRow));
  byId("count").textContent = episodes.length ? `${found.length} of ${episodes.length}` : "";
  byId("previous").disabled = page === 0;
  byId("next").disabled = start + PAGE >= found.length;
}

function tableRow(episode) {
  const { line, row } = episode;
  const cells = [line, row.task_id ?? "–", number(returnOf(row)), success(row.success), stopOf(row), turnsOf(row) ?? "–"];
  const element = make("tr", { tabIndex: 0 }, ...cells.map((cell) => make("td", {}, cell)));
  const open = () => {
    for (const other of element.parentElement.children) other.setAttribute("aria-selected", String(other === element));
    show(row, line);
  };
  element.addEventListener("click", open);
  element.addEventListener("keydown", (pressed) => { if (pressed.key === "Enter") open(); });
  return element;
}

const stopOf = (row) => (row.fault ? make("span", { className: "bad" }, "fault") : row.stop_reason ?? "–");

function show(row, line) {
  const known = ["environment", "task_id", "sample", "seed", "episode_id", "stop_reason", "turns", "invalid_actions", "sampled_tokens"];
  const figures = known.filter((name) => row[name] !== undefined && row[name] !== null).map((name) => [name, String(row[name])]);
  const fault = row.fault ? (typeof row.fault === "string" ? row.fault : JSON.stringify(row.fault)) : null;
  byId("episode").replaceChildren(
    ...[
      facts(`Episode on line ${line}`, [["return", number(returnOf(row))], ["success", success(row.success)], ...figures]),
      fault ? make("p", { className: "bad" }, fault) : null,
      componentFacts("Reward components", componentsOf(row)),
      make("section", {}, make("h2", {}, "Messages"), make("ol", {}, ...messagesOf(row).map((message) => card(message)))),
    ].filter(Boolean),
  );
  byId("episode").hidden = false;
  // On a small screen it stands below the table.
  byId("episode").scrollIntoView({ block: "nearest" });
}

export function wire() {
  byId("file").addEventListener("change", () => load().catch(fail));
  byId("filter").addEventListener("input", search);
  byId("outcome").addEventListener("change", search);
  byId("previous").addEventListener("click", () => { page -= 1; draw(); });
  byId("next").addEventListener("click", () => { page += 1; draw(); });
}
