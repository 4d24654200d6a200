// Runs before the first paint, so that a chosen theme does not flash up in the other one.
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
