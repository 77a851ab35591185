// The time and the value of a chart under the pointer, beside a line through it. Both are outside of the parts that are refreshed.
const line = element("hair");
const tip = element("tip");

export function point() {
  if (!document.querySelector(".plot")) return;
  document.body.append(line, tip);
  for (const type of ["pointermove", "pointerdown"]) document.addEventListener(type, show);
  for (const type of ["scroll", "pointercancel"]) document.addEventListener(type, hide, { capture: true, passive: true });
  document.documentElement.addEventListener("pointerleave", hide);
}

function element(className) {
  return Object.assign(document.createElement("div"), { className, hidden: true, ariaHidden: "true" });
}

function hide() {
  line.hidden = tip.hidden = true;
}

function show(event) {
  const plot = event.target.closest?.(".plot");
  if (!plot) return hide();
  const { first, width, texts } = plot.dataset;
  const values = texts.split("|");
  const box = plot.querySelector("svg").getBoundingClientRect();
  const last = Math.max(1, values.length - 1);
  const place = Math.max(0, Math.min(values.length - 1, Math.round(((event.clientX - box.left) / box.width) * last)));
  const x = box.left + (box.width * place) / last;
  const time = new Date((Number(first) + place * Number(width)) * 1000).toISOString();
  tip.textContent = `${time.slice(0, 10)} ${time.slice(11, 16)} UTC · ${values[place] || "not known"}`;
  line.hidden = tip.hidden = false;
  Object.assign(line.style, { left: `${x}px`, top: `${box.top}px`, height: `${box.height}px` });
  // On the side with more room.
  const beside = x < innerWidth / 2 ? x + 8 : x - 8 - tip.offsetWidth;
  const left = Math.max(4, Math.min(beside, innerWidth - tip.offsetWidth - 4));
  Object.assign(tip.style, { left: `${left}px`, top: `${box.top}px` });
}
