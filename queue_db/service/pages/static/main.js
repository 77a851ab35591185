// What every page has: the live parts, the keys, and the switch between light and dark; and the pointer in charts.
import { follow } from "./live.js";
import { point } from "./chart.js";
import { listen } from "./keys.js";
import { switchTheme } from "./theme.js";

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", switchTheme);

const live = follow(document.getElementById("live"));
listen({ live, theme: switchTheme });
point();
