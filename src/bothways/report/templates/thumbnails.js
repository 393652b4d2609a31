"use strict";
// Draws the recordings that are in sight, and hides those that are not asked for.
{
  const NOTHING = 0xf0;
  const filter = document.querySelector(".filter");
  const recordings = data.sections[Number(filter.dataset.section)].recordings;
  const cards = [...document.querySelectorAll(".card")];
  const inSight = new Set();

  const draw = (canvas) => {
    const { ch_names: names, drawing } = recordings[Number(canvas.dataset.recording)];
    const { columns, bad, stretches, gaps, events } = drawing;
    const levels = Uint8Array.from(atob(drawing.levels), (character) => character.charCodeAt(0));
    const style = getComputedStyle(canvas);
    const color = (name) => style.getPropertyValue(name).trim();
    const scale = devicePixelRatio || 1;
    const width = (canvas.width = Math.round(canvas.clientWidth * scale));
    const height = (canvas.height = Math.round(canvas.clientHeight * scale));
    const paint = canvas.getContext("2d");
    const row = height / names.length, column = width / columns;
    const box = (fill, alpha, x, y, w, h) => {
      paint.globalAlpha = alpha;
      paint.fillStyle = fill;
      paint.fillRect(x, y, w, h);
    };
    const isBad = new Set(bad);
    for (const channel of bad) box(color("--c1"), 0.14, 0, channel * row, width, row);
    for (const [channel, start, stop] of stretches) {
      if (!isBad.has(channel)) box(color("--c4"), 0.14, start * column, channel * row, (stop - start) * column, row);
    }
    for (const at of events) box(color("--c3"), 0.55, (at + 0.5) * column - scale / 2, 0, scale, height);
    paint.globalAlpha = 0.72;
    const thin = Math.max(1, Math.min(scale, row / 2));
    const edges = Array.from({ length: columns + 1 }, (_, at) => Math.round(at * column));
    // beyond its own row, so that a large wave is seen as one; many channels have no room for it
    const reach = row < 5 * scale ? 0.7 : 1;
    for (let channel = 0; channel < names.length; channel++) {
      const inside = new Set();
      for (const [of, start, stop] of stretches) {
        for (let at = start; of === channel && at < stop; at++) inside.add(at);
      }
      const usual = color(isBad.has(channel) ? "--c1" : "--ink"), stretch = isBad.has(channel) ? usual : color("--c4");
      paint.fillStyle = usual;
      for (let at = 0; at < columns; at++) {
        const level = levels[channel * columns + at];
        if (level === NOTHING) continue;
        if (inside.size) paint.fillStyle = inside.has(at) ? stretch : usual;
        const middle = (channel + 0.5 + reach * (1 - ((level & 15) + (level >> 4) + 1) / 16)) * row;
        const size = Math.max(thin, reach * row * ((level & 15) - (level >> 4)) / 8);
        paint.fillRect(edges[at], middle - size / 2, Math.max(edges[at + 1] - edges[at], 1), size);
      }
    }
    for (const [start, stop] of gaps) {
      paint.clearRect(start * column, 0, (stop - start) * column, height);
      box(color("--quiet"), 0.22, start * column, 0, (stop - start) * column, height);
    }
    canvas.dataset.drawn = "";
  };

  const watcher = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      if (!isIntersecting) inSight.delete(target);
      else if (inSight.add(target)) draw(target);
    }
  }, { rootMargin: "300px" });
  for (const canvas of document.querySelectorAll(".card canvas")) watcher.observe(canvas);
  const again = () => inSight.forEach(draw);
  addEventListener("resize", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);

  for (const canvas of document.querySelectorAll(".card canvas")) {
    canvas.addEventListener("pointermove", (event) => {
      const { ch_names: names } = recordings[Number(canvas.dataset.recording)];
      const box = canvas.getBoundingClientRect();
      const channel = Math.floor(names.length * (event.clientY - box.top) / box.height);
      canvas.title = names[Math.min(names.length - 1, Math.max(0, channel))];
    });
  }

  const pick = () => {
    const status = filter.elements.status.value, text = filter.elements.text.value.toLowerCase();
    let shown = 0;
    for (const card of cards) {
      const fits = (!status || card.dataset.status === status) && card.textContent.toLowerCase().includes(text);
      card.hidden = !fits;
      shown += fits;
    }
    filter.querySelector("output").textContent = shown === cards.length ? "" : `${shown} of ${cards.length} shown`;
  };
  filter.hidden = false;
  filter.addEventListener("input", pick);
  filter.addEventListener("submit", (event) => event.preventDefault());
}
