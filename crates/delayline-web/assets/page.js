// Everything works without this file. It tells the server the viewer's time zone, adds a box that
// selects all rows of a table, and pages that keep up with the queue.
"use strict";

const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

// Adds what needs this file to a page, or to a new part of it.
function prepare(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const instant = new Date(time.dateTime);
    if (!Number.isNaN(instant.getTime())) time.title = format.format(instant);
  }
  for (const all of root.querySelectorAll("input[data-all]")) all.closest("label").hidden = false;
}
prepare(document);

// The next pages have times in the viewer's zone, unless another one was chosen.
if (!document.cookie.includes("delayline_zone=")) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `delayline_zone=${encodeURIComponent(zone)}; max-age=31536000; samesite=strict`;
}

document.addEventListener("change", ({ target }) => {
  if (!target.matches("input[data-all]")) return;
  for (const box of target.form.querySelectorAll("input[name=id]")) box.checked = target.checked;
});

// Replaces parts of the page by their current versions, except where the user is typing, points at a
// picture, or has ticked something. Rows stay in their places as long as they are the same rows.
async function refresh() {
  const address = new URL(location.href);
  address.searchParams.delete("note");
  address.searchParams.set("live", "1");
  const response = await fetch(address, { headers: { accept: "text/html" } });
  if (!response.ok) throw new Error(response.statusText);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  document.title = page.title;
  document.querySelector("link[rel=icon]").href = page.querySelector("link[rel=icon]").href;
  const parts = (root) => [...root.querySelectorAll("[data-part]")];
  const name = (part) => part.dataset.part;
  const current = new Map(parts(page).map((part) => [name(part), part]));
  for (const part of parts(document)) {
    const now = current.get(name(part));
    if (!now || !part.isConnected) continue;
    if ("rows" in part.dataset && String(parts(part).map(name).sort()) === String(parts(now).map(name).sort())) continue;
    if (part.contains(document.activeElement) || part.querySelector(":checked, details[open], .plot:hover")) continue;
    part.replaceWith(now);
    prepare(now);
  }
}

const live = document.querySelector("[data-live]");
if (live) {
  let events = null;
  let missed = false; // whether something may have changed since the page was drawn
  let doubt = 0; // runs while there is no connection, and then the page says so
  let again = 0;
  const tell = (stale) => {
    clearTimeout(doubt);
    doubt = 0;
    live.hidden = !stale;
  };
  const changed = () => refresh().then(() => tell(false), () => tell(true));
  const leave = () => {
    clearTimeout(again);
    events?.close();
    events = null;
    missed = true;
  };
  const follow = () => {
    events = new EventSource(live.dataset.live);
    events.addEventListener("changed", changed);
    events.addEventListener("open", () => {
      clearTimeout(doubt);
      doubt = 0;
      if (missed) changed();
      missed = false;
    });
    // The server ends the connection from time to time, and the browser then makes a new one by
    // itself, unless it was refused.
    events.addEventListener("error", () => {
      missed = true;
      doubt ||= setTimeout(tell, 10_000, true);
      if (events.readyState !== EventSource.CLOSED) return;
      leave();
      again = setTimeout(follow, 5_000);
    });
  };
  // A hidden page needs nothing, and browsers allow few connections to a server.
  const seen = () => {
    leave();
    clearTimeout(doubt);
    doubt = 0;
    if (!document.hidden) follow();
  };
  document.addEventListener("visibilitychange", seen);
  if (!document.hidden) follow();
}
