// The script of the board. It inserts what the server has rendered, and appends text; it makes no HTML itself.
"use strict";

for (const form of document.querySelectorAll("form[data-send]")) form.requestSubmit();

document.addEventListener("click", ({ target }) => {
  if (!target.dataset?.copy) return;
  navigator.clipboard?.writeText(target.dataset.copy).then(() => (target.textContent = "Copied"));
});

const byId = (id) => document.getElementById(id);
const parse = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html; // rendered by our server, which escapes all that others wrote
  return template.content;
};

// Bring the children of an element up to date. One whose key is the same stays as it is, with the focus and what was typed.
function update(target, html) {
  const focused = target.contains(document.activeElement) ? document.activeElement : null;
  const fresh = [...parse(html).children];
  const keys = new Set(fresh.map((each) => each.dataset.key));
  for (const each of [...target.children]) if (!keys.has(each.dataset.key)) each.remove();
  const known = new Map([...target.children].map((each) => [each.dataset.key, each]));
  let at = target.firstElementChild;
  for (const each of fresh) {
    const stays = known.get(each.dataset.key);
    if (stays && stays === at) at = at.nextElementSibling;
    else target.insertBefore(stays ?? each, at);
  }
  if (focused && !focused.isConnected) {
    const links = [...target.querySelectorAll("a[href]")];
    links.find((each) => each.href === focused.href)?.focus({ preventScroll: true });
  }
}

// A question never takes the place of another one: a box stays where it is, and a new one comes below all others.
function updateQuestions(target, html) {
  const fresh = new Map([...parse(html).children].map((each) => [each.dataset.call, each]));
  for (const each of [...target.children]) {
    const next = fresh.get(each.dataset.call);
    fresh.delete(each.dataset.call);
    if (next?.dataset.key === each.dataset.key) continue;
    const { height } = each.getBoundingClientRect();
    for (const button of each.querySelectorAll("button")) button.disabled = true;
    if (next) each.replaceWith(next);
    else if (!each.matches(".answered")) {
      each.classList.add("answered");
      each.querySelector("h2").textContent = "This question is closed";
    }
    (next ?? each).style.minHeight = `${height}px`;
  }
  for (const each of fresh.values()) {
    target.append(each);
    rest(each, true);
  }
}

// A new question is inert while nobody can have read it, and until a pointer that was on its place has left.
const LOOK_MILLISECONDS = 1500; // the server refuses a faster answer
let pointer; // its last event; undefined while nobody knows where it is, null if it is not on the page
document.documentElement.addEventListener("pointermove", (event) => (pointer = event));
document.documentElement.addEventListener("pointerleave", () => (pointer = null));
document.documentElement.addEventListener("keydown", () => (pointer ??= null));
function isUnderPointer(box) {
  if (!pointer) return pointer === undefined && matchMedia("(hover: hover)").matches;
  const { left, right, top, bottom } = box.getBoundingClientRect();
  return pointer.clientX >= left && pointer.clientX <= right && pointer.clientY >= top && pointer.clientY <= bottom;
}
const WAKING = ["pointermove", "pointerleave", "keydown"];
function rest(box, isNew) {
  const buttons = box.querySelectorAll("button");
  let isShort = true;
  let isCovered = isNew;
  const wake = () => {
    isCovered &&= isUnderPointer(box);
    if (isShort || isCovered) return;
    box.classList.remove("resting");
    for (const each of buttons) each.disabled = false;
    for (const name of WAKING) document.documentElement.removeEventListener(name, wake);
  };
  box.classList.add("resting");
  for (const each of buttons) each.disabled = true;
  for (const name of WAKING) document.documentElement.addEventListener(name, wake);
  setTimeout(() => {
    isShort = false;
    wake();
  }, LOOK_MILLISECONDS);
  if (pointer !== undefined) wake();
}
for (const each of document.querySelectorAll(".ask")) rest(each, false);

// The tab says how many questions wait. A browser that was asked to also notifies of each new one.
const title = document.title;
const NOTIFY = "callboard-notify";
const isNotifying = () => localStorage.getItem(NOTIFY) && Notification.permission === "granted";
let waiting = 0;
function countWaiting() {
  const count = document.querySelectorAll("#waiting li, .ask:not(.answered)").length;
  document.title = count ? `(${count}) ${title}` : title;
  if (count > waiting && document.hidden && isNotifying()) new Notification("Waiting for you", { body: title });
  waiting = count;
}
countWaiting();
for (const button of document.querySelectorAll("[data-notify]")) {
  if (!("Notification" in window)) continue;
  const show = () => (button.textContent = isNotifying() ? "Notifications are on" : "Notify me");
  button.hidden = false;
  button.addEventListener("click", async () => {
    if (isNotifying()) localStorage.removeItem(NOTIFY);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(NOTIFY, "1");
    show();
  });
  show();
}

// Keys: / searches, j and k go through the rows or entries, ? shows the keys.
const steps = (by) => {
  const links = [...document.querySelectorAll("#rows .title > a, #log .mark")];
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
};
const KEYS = {
  "/": () => document.querySelector("input[type=search]")?.focus(),
  j: () => steps(1),
  k: () => steps(-1),
  "?": () => (byId("keys")?.open ? byId("keys").close() : byId("keys")?.showModal()),
};
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

// Keep a page up to date while it is looked at: a browser has few connections, and a hidden page needs none.
function follow(log) {
  const status = byId("status");
  const pieces = byId("pieces");
  let source;
  let position = "";
  const say = (text) => {
    if (status && status.textContent !== text) status.textContent = text;
  };
  const keepEnd = (change) => {
    const page = document.documentElement;
    // What a person may click on stays where it is.
    const follows = !document.querySelector(".ask") && window.scrollY > 0 && window.innerHeight + window.scrollY >= page.scrollHeight - 120;
    change();
    if (follows) window.scrollTo(0, page.scrollHeight);
  };
  const handlers = {
    entries: (event) => keepEnd(() => {
      position = event.lastEventId;
      pieces.replaceChildren();
      log.append(parse(JSON.parse(event.data).html));
    }),
    parts: (event) => {
      for (const [id, html] of Object.entries(JSON.parse(event.data))) {
        const target = byId(id);
        (target.matches("[data-questions]") ? updateQuestions : update)(target, html);
      }
      countWaiting();
    },
    pieces: (event) => keepEnd(() => JSON.parse(event.data).forEach(addPiece)),
    reload: () => {
      stop();
      window.location.reload();
    },
  };
  const addPiece = ({ id, title, text }) => {
    if (title !== undefined || !byId(`now-${id}`)) {
      const block = pieces.appendChild(document.createElement("div"));
      block.className = "block now";
      const who = block.appendChild(document.createElement("p"));
      who.className = "who";
      who.textContent = title ?? "";
      const body = block.appendChild(document.createElement("p"));
      body.className = "text";
      body.id = `now-${id}`;
    }
    if (text !== undefined) byId(`now-${id}`).append(text);
  };
  const start = () => {
    if (source) return;
    const address = new URL(log.dataset.live, window.location);
    if (position) address.searchParams.set("position", position);
    source = new EventSource(address);
    source.onopen = () => {
      pieces?.replaceChildren(); // each connection begins them anew
      say("Live");
    };
    source.onerror = () => say(source.readyState === EventSource.CLOSED ? "Live updates stopped. Reload the page." : "Reconnecting…");
    for (const [name, handler] of Object.entries(handlers)) source.addEventListener(name, handler);
  };
  const stop = () => {
    source?.close();
    source = undefined;
    pieces?.replaceChildren();
  };
  document.addEventListener("visibilitychange", () => (document.hidden && !isNotifying() ? stop() : start()));
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", start);
  start();
}
for (const log of document.querySelectorAll("[data-live]")) follow(log);

// Ages go on by themselves, in the words of the server and by its clock: that of a browser may be hours off.
const ahead = Date.now() - Date.parse(document.body.dataset.now);
function describe(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.max(0, Math.floor(seconds))} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
// A time says itself in the reader's time zone.
document.addEventListener("pointerover", ({ target }) => {
  const time = target.closest("time");
  if (time) time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
});
setInterval(() => {
  for (const each of document.querySelectorAll("time[data-age]")) {
    const text = describe((Date.now() - ahead - Date.parse(each.dateTime)) / 1000);
    if (each.textContent !== text) each.textContent = text;
  }
}, 1000);
