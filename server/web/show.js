// What both views draw with. Whatever a model or a data set wrote reaches the page as text nodes only, never as markup.

export const byId = (id) => document.getElementById(id);

/** An element with properties and children; strings become text nodes. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined).map(textOrNode));
  return element;
}

const textOrNode = (child) => (child instanceof Node ? child : String(child));

/** The content of a message as text: plain, a list of parts, or tool calls. */
function contentOf(message) {
  const parts = [];
  if (typeof message.content === "string") parts.push(message.content);
  else if (message.content != null) parts.push(JSON.stringify(message.content, null, 2));
  for (const call of Array.isArray(message.tool_calls) ? message.tool_calls : []) {
    const { name, arguments: given } = call?.function ?? {};
    parts.push(`${name}(${typeof given === "string" ? given : JSON.stringify(given ?? {})})`);
  }
  return parts.filter(Boolean).join("\n");
}

const ROLES = new Set(["system", "user", "assistant", "tool"]);

/** A message's card. `note` stands beside its role. */
export function card(message, note = "") {
  const role = ROLES.has(message?.role) ? message.role : "other";
  return make(
    "li",
    { className: `message ${role}` },
    make("div", { className: "role" }, make("span", {}, message?.name ? `${role} ${message.name}` : role), make("span", {}, note)),
    make("pre", { tabIndex: 0 }, contentOf(message ?? {})),
  );
}

export function number(value) {
  if (typeof value !== "number") return "–";
  return String(Number(value.toPrecision(4)));
}

export function success(value) {
  if (value === true) return make("span", { className: "good" }, "solved");
  if (value === false) return make("span", { className: "bad" }, "not solved");
  return make("span", {}, "–");
}

/** A table of names and values under a heading; null where there is nothing to show. */
export function facts(title, entries) {
  if (entries.length === 0) return null;
  const rows = entries.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)));
  return make("section", {}, make("h2", {}, title), make("table", {}, make("tbody", {}, ...rows)));
}

export function componentFacts(title, components) {
  return facts(title, Object.entries(components ?? {}).map(([name, value]) => [name, number(value)]));
}

export function fail(error) {
  const line = byId("error");
  line.textContent = error ? String(error.message ?? error) : "";
  line.hidden = !error;
}
