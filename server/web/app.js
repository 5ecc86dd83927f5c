// The page's two views, and which of them is in front.

import * as play from "./play.js";
import * as read from "./read.js";
import { byId } from "./show.js";

const views = ["play", "read"];

function front(view) {
  for (const name of views) {
    byId(name).hidden = name !== view;
    byId(`tab-${name}`).setAttribute("aria-selected", String(name === view));
    byId(`tab-${name}`).tabIndex = name === view ? 0 : -1;
  }
}

function turnTo(name) {
  front(name);
  history.replaceState(null, "", `#${name}`);
}

for (const name of views) {
  byId(`tab-${name}`).addEventListener("click", () => turnTo(name));
  byId(`tab-${name}`).addEventListener("keydown", (pressed) => {
    if (!["ArrowLeft", "ArrowRight"].includes(pressed.key)) return;
    const other = views.find((view) => view !== name);
    turnTo(other);
    byId(`tab-${other}`).focus();
  });
}

play.wire();
read.wire();
front(location.hash === "#read" ? "read" : "play");
play.connect();
