// Light, dark, or as the system has it. The choice is a cookie, so that the server sends the page with it: nothing flashes.
const root = document.documentElement;

export function switchTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const other = system === "dark" ? "light" : "dark";
  const path = document.body.dataset.root;
  if (root.dataset.theme === other) {
    delete root.dataset.theme;
    document.cookie = `theme=; path=${path}; max-age=0; samesite=strict`;
  } else {
    root.dataset.theme = other;
    document.cookie = `theme=${other}; path=${path}; max-age=31536000; samesite=strict`;
  }
}
