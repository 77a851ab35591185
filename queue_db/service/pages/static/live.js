// Keeps the parts of a page that have the attribute data-live and an id up to date: the page is fetched again, and what differs is
// changed in place. Nothing is fetched while the tab is hidden or somebody has selected text in such a part.
const EVERY = 5000;
const LONGEST = 60000;

export function follow(button) {
  const parts = () => [...document.querySelectorAll("[data-live][id]")];
  if (!parts().length) return { toggle() {} };
  let timer = 0;
  let wait = EVERY;
  let stopped = false;
  let running = false;
  let since = null; // when it was found that nobody answers
  const text = button.querySelector(".text");
  button.hidden = false;

  function show() {
    button.setAttribute("aria-pressed", String(!stopped));
    text.textContent = stopped ? "stopped" : since ? `not connected since ${since.toLocaleTimeString()}` : "live";
    button.classList.toggle("away", !stopped && since !== null);
    document.body.classList.toggle("away", since !== null);
  }

  function plan(after) {
    clearTimeout(timer);
    if (!stopped && !document.hidden) timer = setTimeout(refresh, after);
  }

  async function refresh() {
    if (running) return;
    if (selecting(parts())) return plan(EVERY);
    running = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin", signal: AbortSignal.timeout(15000) });
      // The session has ended: the login leads back to this page.
      if (answer.redirected || answer.status === 401 || answer.status === 403) return location.replace(answer.url);
      // An error: this page stays as it is, and says since when.
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of parts()) {
        const other = fresh.getElementById(part.id);
        if (other) morph(part, other);
      }
      document.title = fresh.title;
      wait = EVERY;
      since = null;
    } catch {
      since ??= new Date();
      wait = Math.min(LONGEST, wait * 2);
    }
    running = false;
    show();
    plan(wait);
  }

  function toggle() {
    stopped = !stopped;
    show();
    if (stopped) clearTimeout(timer);
    else refresh();
  }

  button.addEventListener("click", toggle);
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : stopped || refresh()));
  plan(EVERY);
  return { toggle, refresh };
}

function selecting(parts) {
  const selection = getSelection();
  return !selection.isCollapsed && parts.some((part) => part.contains(selection.anchorNode));
}

// Makes one element like another, and leaves alone what is the same, what has the focus, and which details are open.
export function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.dataset?.row !== fresh.dataset?.row) return old.replaceWith(document.importNode(fresh, true));
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old === document.activeElement && old.matches("input, select, textarea")) return;
  attributes(old, fresh);
  rows(old, fresh);
  const left = [...old.childNodes];
  const right = [...fresh.childNodes];
  right.forEach((node, place) => (place < left.length ? morph(left[place], node) : old.append(document.importNode(node, true))));
  left.slice(right.length).forEach((node) => node.remove());
}

function attributes(old, fresh) {
  for (const { name } of [...old.attributes]) if (name !== "open" && name !== "class" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
}

// Rows with a name (data-row) keep their elements when others come before them.
function rows(old, fresh) {
  if (![...fresh.children].some((row) => row.dataset?.row)) return;
  const known = new Map([...old.children].map((row) => [row.dataset.row, row]));
  let place = old.firstElementChild;
  for (const row of fresh.children) {
    const mine = known.get(row.dataset.row);
    if (mine && mine !== place) old.insertBefore(mine, place);
    else if (!mine) old.insertBefore(document.importNode(row, true), place);
    place = (mine && mine === place) ? place.nextElementSibling : place;
    known.delete(row.dataset.row);
  }
  for (const gone of known.values()) gone.remove();
  // Blanks between the rows: the same number as in the new one is not needed for anything.
  for (const node of [...old.childNodes, ...fresh.childNodes]) if (node.nodeType === Node.TEXT_NODE) node.remove();
}
