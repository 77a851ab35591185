// The keyboard: g and a letter for a page, / for the filter, j and k for rows, p for the live parts, t for the theme, ? for help.
export function listen({ live, theme }) {
  const help = document.getElementById("help");
  const button = document.getElementById("keys");
  const side = document.querySelector(".side");
  let goes = false;
  let timer = 0;
  button.hidden = false;
  button.addEventListener("click", () => help.showModal());

  const single = {
    "/": () => focusFilter(),
    "?": () => help.showModal(),
    p: () => live.toggle(),
    t: theme,
    j: () => move(1),
    k: () => move(-1),
    g: () => await_(true),
  };

  function await_(on) {
    goes = on;
    side.classList.toggle("awaits", on);
    clearTimeout(timer);
    if (on) timer = setTimeout(() => await_(false), 2000);
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest("input, select, textarea, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (goes) {
      await_(false);
      const link = document.querySelector(`.side a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    if (event.key === "Enter" && event.target === document.body) return open();
    const action = single[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function focusFilter() {
  const filter = document.querySelector("[data-filter]");
  filter?.focus();
  filter?.select?.();
}

function move(by) {
  const all = [...document.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a"));
  if (!all.length) return;
  const now = all.findIndex((row) => row.classList.contains("here"));
  all[now]?.classList.remove("here");
  const next = all[Math.max(0, Math.min(all.length - 1, now < 0 && by < 0 ? all.length - 1 : now + by))];
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
}

function open() {
  document.querySelector("tbody tr.here a")?.click();
}
