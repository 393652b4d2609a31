"use strict";
// Reading values off a recording, by pointer or by keyboard. Without this script the page still shows everything.
const data = JSON.parse(document.getElementById("data").textContent);

for (const plot of document.querySelectorAll(".recording")) {
  const section = data.sections[Number(plot.dataset.section)];
  const signals = plot.querySelector(".signals");
  const cursor = plot.querySelector(".cursor");
  const readout = plot.closest("figure").querySelector(".readout");
  const resting = readout.textContent;
  const times = section.times_s;
  const start = Number(signals.getAttribute("aria-valuemin"));
  const stop = Number(signals.getAttribute("aria-valuemax"));

  const nearest = (list, t) => {
    let low = 0, high = list.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle] < t) low = middle + 1; else high = middle;
    }
    return low > 0 && t - list[low - 1] < list[low] - t ? low - 1 : low;
  };
  const labelAt = (spans, t) => {
    const span = (spans || []).find((s) => s.start_s <= t && t < s.stop_s);
    return span ? span.label : "–";
  };

  let now = start, channel = null;
  const show = (t) => {
    now = Math.min(stop, Math.max(start, t));
    cursor.hidden = false;
    cursor.style.left = `${100 * (now - start) / (stop - start)}%`;
    const parts = [`${now.toFixed(1)} s`];
    for (const trace of section.trace ? [section.trace] : section.traces || []) {
      const value = trace.values[nearest(trace.times_s, now)];
      parts.push(`${trace.label} ${value === null ? "–" : value.toFixed(2)}`);
    }
    if (section.predicted) parts.push(`predicted ${labelAt(section.predicted, now)}`);
    if (section.truth) parts.push(`${section.truth_label ?? "true"} ${labelAt(section.truth, now)}`);
    if (channel !== null) {
      const value = section.signals_uv[channel][nearest(times, now)];
      parts.push(`${section.ch_names[channel]} ${value === null ? "missing" : `${value.toFixed(0)} µV`}`);
    }
    readout.textContent = parts.join("  ·  ");
    signals.setAttribute("aria-valuenow", now.toFixed(1));
    signals.setAttribute("aria-valuetext", readout.textContent);
  };
  const hide = () => {
    cursor.hidden = true;
    readout.textContent = resting;
  };

  signals.addEventListener("pointermove", (event) => {
    const box = signals.getBoundingClientRect();
    const row = Math.floor(section.ch_names.length * (event.clientY - box.top) / box.height);
    channel = Math.min(section.ch_names.length - 1, Math.max(0, row));
    show(start + (stop - start) * (event.clientX - box.left) / box.width);
  });
  signals.addEventListener("pointerleave", hide);
  signals.addEventListener("blur", hide);
  signals.addEventListener("keydown", (event) => {
    const step = Math.max(1, (stop - start) / 1000) * (event.shiftKey ? 10 : 1);
    const rows = section.ch_names.length;
    const moves = {
      ArrowLeft: () => show(now - step),
      ArrowRight: () => show(now + step),
      Home: () => show(start),
      End: () => show(stop),
      ArrowUp: () => { channel = Math.max(0, (channel ?? 0) - 1); show(now); },
      ArrowDown: () => { channel = Math.min(rows - 1, (channel ?? -1) + 1); show(now); },
      Escape: hide,
    };
    if (moves[event.key]) {
      event.preventDefault();
      moves[event.key]();
    }
  });
}
