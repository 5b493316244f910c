// Everything works without this file. It adds the viewer's own time zone to times, and a box that
// selects all rows of a table.
"use strict";

const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
for (const time of document.querySelectorAll("time[datetime]")) {
  const instant = new Date(time.dateTime);
  if (!Number.isNaN(instant.getTime())) time.title = format.format(instant);
}

for (const all of document.querySelectorAll("input[data-all]")) {
  const boxes = all.closest("form").querySelectorAll("input[name=id]");
  all.closest("label").hidden = false;
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
  });
}
