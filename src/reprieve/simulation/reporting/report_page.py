"""The frame of `report.html`: its style in both themes, and the script that shows stories.

Nothing is loaded from anywhere. Without the script everything but the stories, and the choice of
the policy with the accent, is there.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPT", "STYLE"]

STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2024;--soft:#60676e;--faint:#e3e6e9;
--quiet:#8b9299;--fill:#b9bfc5;--accent:#0b62c4;--tint:#f5f7f9}
@media (prefers-color-scheme:dark){:root{--paper:#15181b;--ink:#e4e7ea;--soft:#9aa2aa;
--faint:#2b3035;--quiet:#7d858d;--fill:#4c545b;--accent:#6cb0ff;--tint:#1c2024}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1220px;padding:24px 28px 60px;background:var(--paper);
color:var(--ink);font:14px/1.45 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:20px;font-weight:600;margin:14px 0 2px}
h2{font-size:16px;font-weight:600;margin:34px 0 6px;border-top:1px solid var(--faint);
padding-top:16px}
h3{font-size:13px;font-weight:600;margin:16px 0 4px}
p{margin:4px 0}.soft,small{color:var(--soft)}.own{margin:0;padding:0;list-style:none}
.notice{border-left:3px solid var(--accent);padding:2px 10px;margin:8px 0}
table{border-collapse:collapse;margin:8px 0 4px;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
th,td{padding:3px 0 3px 14px;text-align:right;white-space:nowrap;vertical-align:top}
th:first-child,td:first-child{text-align:left;padding-left:0}
th{font-weight:500;color:var(--soft);border-bottom:1px solid var(--faint)}
.meanings td{text-align:left;white-space:normal}
tbody tr+tr td{border-top:1px solid var(--faint)}
td small{display:block;font-size:11.5px;line-height:1.3;white-space:normal}
tr.chosen td:first-child{color:var(--accent);font-weight:600}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(460px,1fr));gap:6px 32px}
.charts>figure{min-width:0;margin:8px 0}
figcaption,caption{font-size:13px;color:var(--soft);text-align:left}
caption{padding:0 0 6px;white-space:normal}figcaption b,caption b{color:var(--ink)}
.chart{width:100%;height:auto;display:block}
.chart text{font-size:11px;fill:var(--soft);font-variant-numeric:tabular-nums}
.chart .name,.chart .value{fill:var(--ink)}
.grid{stroke:var(--faint)}.tick{stroke:var(--quiet)}
.line{fill:none;stroke:var(--quiet);stroke-width:1.4}
.bar{fill:var(--fill)}.whisker{stroke:var(--ink);fill:none;stroke-width:1.1}
.line.chosen{stroke:var(--accent);stroke-width:2.2;stroke-dasharray:none}.bar.chosen{fill:var(--accent)}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0}
.legend button{all:unset;cursor:pointer;display:inline-flex;gap:6px;align-items:center;
font-size:13px}
.legend button:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.legend button.chosen{color:var(--accent);font-weight:600}
form{display:flex;flex-wrap:wrap;gap:8px 14px;margin:8px 0;align-items:center}
input,select,form button{font:inherit;cursor:auto;color:inherit;background:var(--tint);
border:1px solid var(--faint);
border-radius:4px;padding:3px 7px;max-width:100%}
ol.story{margin:6px 0 0;padding:0;list-style:none;font-variant-numeric:tabular-nums}
ol.story li{display:grid;grid-template-columns:110px 1fr;gap:12px;padding:2px 0}
ol.story time{color:var(--soft);text-align:right}
ol.story a,#story a{color:var(--accent);text-decoration:none}
pre{background:var(--tint);padding:10px 12px;overflow-x:auto;font-size:12.5px;border-radius:4px}
details{margin:8px 0}summary{cursor:pointer;color:var(--soft)}
@media print{body{max-width:none;padding:0}.legend button{cursor:auto}form{display:none}}
"""

SCRIPT: Final = """
"use strict";
const choose = number => {
  for (const part of document.querySelectorAll(".chosen")) part.classList.remove("chosen");
  for (const part of document.querySelectorAll(".p" + number + ",[data-policy='" + number + "']"))
    part.classList.add("chosen");
};
for (const button of document.querySelectorAll(".legend button"))
  button.addEventListener("click", () => choose(button.dataset.policy));

const stories = document.getElementById("stories"), asked = document.getElementById("asked");
const unpacked = new Map();
async function unpack(run) {
  if (!unpacked.has(run)) {
    const text = document.getElementById("run-" + run).textContent;
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(run, JSON.parse(await new Response(stream).text()));
  }
  return unpacked.get(run);
}
const span = seconds => {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (Math.abs(seconds) >= size) return (seconds / size).toFixed(1) + " " + unit;
  return seconds + " s";
};
const moment = seconds => {
  const two = number => String(number).padStart(2, "0");
  const [days, rest] = [Math.floor(seconds / 86400), seconds % 86400];
  return (days ? days + " d " : "") + two(Math.floor(rest / 3600)) + ":"
    + two(Math.floor(rest / 60) % 60) + ":" + two(rest % 60);
};
const element = (name, text) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
};
function named(told, row) {
  const link = element("a", told.jobs[row][0]);
  link.href = "#story";
  link.addEventListener("click", event => {
    event.preventDefault(); asked.value = told.jobs[row][0]; tell();
  });
  return link;
}
function line(list, at, ...parts) {
  const item = element("li"), text = element("span");
  item.append(element("time", moment(at)), text);
  text.append(...parts);
  list.append(item);
}
function list(told, rows) {
  const parts = [];
  rows.forEach((row, place) => { if (place) parts.push(", "); parts.push(named(told, row)); });
  return parts;
}
async function tell() {
  const place = document.getElementById("story"), told = await unpack(stories.value);
  place.replaceChildren();
  const wanted = asked.value.trim();
  const found = told.jobs.find(job => job[0] === wanted);
  if (!found) {
    place.append(element("p", wanted ? "There is no job " + wanted + " in this run." : ""));
    return;
  }
  const [id, tenant, priority, devices, arrival, duration, finish, events] = found;
  place.append(element("p", "Job " + id + " of " + tenant + ", priority " + priority + ", "
    + devices + (devices === 1 ? " device" : " devices") + " for " + span(duration)));
  const story = element("ol"); story.className = "story"; place.append(story);
  line(story, arrival, "arrives");
  for (const [kind, at, ...rest] of events) {
    if (kind === 0) line(story, at, (rest[0] ? "starts again" : "starts")
      + (rest[1] ? ", borrowing from other tenants" : ""));
    else if (kind === 4) line(story, at, "gives its quota back: there were no nodes in time");
    else if (kind === 3) line(story, at, "gets quota"
      + (rest[0] ? ", borrowing from other tenants" : ""));
    else if (kind === 5) line(story, at, "has been idle for " + span(at - rest[4])
      + " and is preempted for ", rest[0] === null ? "nobody in particular" : named(told, rest[0]),
      " (" + told.texts[rest[1]] + "): " + told.texts[rest[3]] + ". " + (rest[5] === null
      ? "Its work was done, nothing is lost." : rest[2] + " GPU h of work undone; it comes back at "
      + moment(rest[5]) + ", when it would have been used again."));
    else if (kind === 1) line(story, at, "is preempted for ", named(told, rest[0]), " ("
      + told.texts[rest[1]] + "), " + rest[2] + " GPU h of work undone. Of the other: "
      + told.texts[rest[3]]);
    else line(story, at, "preempts ", ...list(told, rest[0]), ": " + told.texts[rest[1]]);
  }
  if (finish !== null) line(story, finish, "finishes");
}
if (asked) {
  asked.form.addEventListener("submit", event => { event.preventDefault(); tell(); });
  stories.addEventListener("change", tell);
  document.getElementById("most").addEventListener("click", async event => {
    event.preventDefault();
    const told = await unpack(stories.value);
    const often = job => job[7].filter(step => step[0] === 1 || step[0] === 5).length;
    asked.value = told.jobs.reduce((best, job) => often(job) > often(best) ? job : best)[0];
    tell();
  });
  document.getElementById("most").click();
}
"""
