// Charts: the sparkline of a stream, and plots.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Meter } from "../model/activity";
import { colour, onInterval, useMedia } from "./hooks";
import { clock } from "./formatting";

const SPARK_SECONDS = 60;

/** Frames per second over the last minute. Drawn once a second, independently of its row. */
export function Spark({ flow, now }: { flow: Meter | undefined; now: () => number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!flow) return undefined;
    let lastDrawn = "";
    const draw = (): void => {
      const element = canvas.current;
      if (!element) return;
      const series = flow.series(now(), SPARK_SECONDS, "frames");
      const line = colour("accent");
      // Most streams are idle: an unchanged line is not drawn again.
      const appearance = `${line}${element.clientWidth}:${series.join()}`;
      if (appearance === lastDrawn) return;
      lastDrawn = appearance;
      drawSpark(element, series, line);
    };
    draw();
    return onInterval(1000, draw);
  }, [flow]);
  return <canvas ref={canvas} class="spark" aria-hidden="true" />;
}

function drawSpark(element: HTMLCanvasElement, series: number[], line: string): void {
  const scale = devicePixelRatio || 1;
  const width = element.clientWidth * scale;
  const height = element.clientHeight * scale;
  if (element.width !== width) element.width = width;
  if (element.height !== height) element.height = height;
  const context = element.getContext("2d");
  if (!context || !width) return;
  context.clearRect(0, 0, width, height);
  const maximum = Math.max(1, ...series);
  const step = width / (series.length - 1);
  const at = (value: number): number => height - scale - (value / maximum) * (height - 3 * scale);
  context.beginPath();
  series.forEach((value, index) => (index ? context.lineTo(index * step, at(value)) : context.moveTo(0, at(value))));
  context.strokeStyle = line;
  context.lineWidth = 1.25 * scale;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(width, height);
  context.lineTo(0, height);
  context.globalAlpha = 0.12;
  context.fillStyle = line;
  context.fill();
  context.globalAlpha = 1;
}

export interface Line {
  label: string;
  hue: string;
}

interface PlotProps {
  label: string;
  lines: Line[];
  /** Seconds since 1970, then the values of each line. */
  data: uPlot.AlignedData;
  format: (value: number) => string;
  height?: number;
  fromZero?: boolean;
}

/** Lines over time. */
export function Plot({ label, lines, data, format, height = 180, fromZero }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = useMedia("(prefers-color-scheme: dark)");
  const linesKey = lines.map((line) => `${line.hue}:${line.label}`).join("\n");

  useLayoutEffect(() => {
    const element = box.current!;
    const create = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(options(lines, format, element.clientWidth || 400, height, fromZero ?? false), data, element);
    };
    create();
    const watcher = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (plot.current && width && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    watcher.observe(element);
    addEventListener("themechange", create);
    return () => {
      watcher.disconnect();
      removeEventListener("themechange", create);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [linesKey, dark, height]);

  useLayoutEffect(() => plot.current?.setData(data), [data]);
  return (
    <figure class="plot" aria-label={label}>
      <figcaption>
        {label}
        <span class="plot-legend">
          {(lines.length > 1 ? lines : []).map((line) => (
            <span key={line.label}>
              <i class={`swatch ${line.hue}`} aria-hidden="true" />
              <bdi>{line.label}</bdi>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={box} class="plot-box" aria-hidden="true" />
    </figure>
  );
}

function options(lines: Line[], format: (value: number) => string, width: number, height: number, fromZero: boolean): uPlot.Options {
  const grid = { stroke: colour("line-soft"), width: 1 };
  const shared = { stroke: colour("soft"), grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const range: uPlot.Range.Function = (_plot, low, high) => {
    if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
    const margin = (high - low || Math.abs(high) || 1) * 0.1;
    return fromZero ? [0, Math.max(1, high * 1.1)] : [low - margin, high + margin];
  };
  return {
    width,
    height,
    padding: [8, 28, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true }, y: { range } },
    axes: [
      { ...shared, space: 90, size: 26, values: (_plot, ticks) => ticks.map((tick) => clock(tick * 1000, false)) },
      { ...shared, size: 62, values: (_plot, ticks) => ticks.map(format) },
    ],
    series: [
      {},
      ...lines.map((line) => ({ label: line.label, stroke: colour(line.hue), width: 1.5, spanGaps: true, points: { show: false } })),
    ],
  };
}
