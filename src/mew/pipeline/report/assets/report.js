"use strict";
(function () {
  const root = document.documentElement;
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const drawn = new Map();
  const HEIGHT = 260;

  // The colours of the page, as the browser has resolved them: a canvas knows no variables.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  const colour = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };

  const counted = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
  const scaled = (units, by) => (value) => {
    let unit = 0;
    while (Math.abs(value) >= by && unit < units.length - 1) {
      value /= by;
      unit += 1;
    }
    return `${value >= 100 || unit === 0 ? Math.round(value) : Number(value.toFixed(1))} ${units[unit]}`;
  };
  const spoken = {
    "B/s": scaled(["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], 1000),
    s: (value) => (value < 0.001 ? `${counted.format(value * 1e6)} µs` : value < 1 ? `${counted.format(value * 1e3)} ms` : `${counted.format(value)} s`),
  };
  const say = (unit) => spoken[unit] || ((value) => counted.format(value));
  const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + "Z";

  function line(plot, label, index) {
    const stroke = colour(`c${plot.colours ? plot.colours[index] : index % 9}`);
    const values = { label, stroke, value: (_, value) => (value == null ? "–" : say(plot.unit)(value)) };
    if (plot.kind === "dots") {
      return { ...values, paths: () => null, points: { show: true, size: 7, fill: stroke } };
    }
    if (plot.kind === "bars") {
      const side = index === 0 ? 1 : -1;
      return { ...values, fill: stroke, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.42, 40], align: side }) };
    }
    const paths = plot.kind === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined;
    return { ...values, width: 1.75, paths, dash: index > 4 ? [8, 4] : undefined, points: { show: plot.x.length < 3 } };
  }

  // The time of day as finely as the marks are apart, and the date where it begins.
  function times(_, ticks, __, ___, apart) {
    let day = "";
    return ticks.map((tick) => {
      const [date, clock] = moment(tick).slice(0, -1).split(" ");
      const shown = apart >= 86400 ? "" : apart >= 60 ? clock.slice(0, 5) : clock;
      const whole = date === day ? shown : shown ? `${shown}\n${date}` : date;
      day = date;
      return whole;
    });
  }

  function axes(plot) {
    const ink = colour("soft");
    const grid = { stroke: colour("line"), width: 1 };
    const shared = { stroke: ink, grid, ticks: grid, font: "12px system-ui, sans-serif" };
    const write = say(plot.unit);
    const values = (_, ticks) => ticks.map((tick) => (tick == null ? "" : write(tick)));
    return [{ ...shared, space: 84, values: times }, { ...shared, size: 76, values }];
  }

  function draw(box) {
    const plot = plots[box.dataset.plot];
    const before = drawn.get(box);
    const shown = before ? before.series.map((each) => each.show) : [];
    if (before) before.destroy();
    const series = [{ label: "time (UTC)", value: (_, value) => (value == null ? "–" : moment(value)) }];
    plot.lines.forEach((each, index) => series.push({ ...line(plot, each.label, index), show: shown[index + 1] !== false }));
    const y = plot.log ? { distr: 3 } : { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] };
    const options = {
      width: box.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { x: { range: (_, low, high) => (high > low ? [low, high] : [low - 1, high + 1]) }, y },
      series,
      axes: axes(plot),
      cursor: { points: { size: 7 } },
      focus: { alpha: 0.35 },
    };
    const made = new uPlot(options, [plot.x, ...plot.lines.map((each) => each.values)], box);
    drawn.set(box, made);
    reachable(box);
  }

  // Lines are switched on and off by keys too.
  function reachable(box) {
    box.querySelectorAll(".u-legend .u-series:not(:first-child) th").forEach((head) => {
      head.tabIndex = 0;
      head.setAttribute("role", "button");
      const told = () => head.setAttribute("aria-pressed", String(!head.parentElement.classList.contains("u-off")));
      told();
      head.addEventListener("click", () => setTimeout(told));
      head.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        head.click();
      });
    });
  }

  const boxes = [...document.querySelectorAll("[data-plot]")];
  const redraw = () => boxes.forEach(draw);
  document.querySelectorAll("[data-whole]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => draw(button.closest("figure").querySelector("[data-plot]")));
  });

  const choice = document.getElementById("theme");
  const keep = (value) => {
    try {
      localStorage.setItem("mew-report-theme", value);
    } catch {
      // A page without a place of its own: the choice lasts as long as the page.
    }
  };
  const kept = () => {
    try {
      return localStorage.getItem("mew-report-theme");
    } catch {
      return null;
    }
  };
  const wear = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  choice.closest(".theme").hidden = false;
  choice.value = ["light", "dark"].includes(kept()) ? kept() : "system";
  wear(choice.value);
  choice.addEventListener("change", () => {
    keep(choice.value);
    wear(choice.value);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawn.forEach((made, box) => made.setSize({ width: box.clientWidth, height: HEIGHT })), 100);
  });
  redraw();
})();
