// The lanes of the timeline, drawn on a canvas. The list below has the same content as text.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { GATEWAY } from "../model/fold";
import type { Event, Family } from "../model/ledger";
import { colour, useMedia, useSession } from "../ui/hooks";
import { Name } from "../ui/parts";
import * as formatting from "../ui/formatting";

const LANE = 30;
const MAX_LANES = 40;
const REACH = 9;
const DRAW_EVERY = 100;

interface LanesProps {
  events: Event[];
  /** The displayed time span; 0 for all events. */
  seconds: number;
  /** The end of the displayed time while the timeline is paused; otherwise null. */
  until: number | null;
  picked: Event | null;
  hovered: Event | null;
  onHover: (event: Event | null) => void;
  onPick: (event: Event) => void;
}

interface Scene {
  events: Event[];
  rows: Map<string, number>;
  from: number;
  to: number;
  width: number;
}

const HUES: { [family in Family]: string } = {
  chat: "c0",
  mcp: "c1",
  reasoning: "c3",
  capability: "c6",
  stream: "c2",
  participant: "c7",
  space: "c5",
  system: "c8",
  other: "c8",
};

export function Lanes({ events, seconds, until, picked, hovered, onHover, onPick }: LanesProps) {
  const session = useSession();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(600);
  const narrow = useMedia("(max-width: 720px)");
  const rows = useRows(events);
  const scene = useRef<Scene>({ events, rows, from: 0, to: 1, width });

  useEffect(() => {
    const element = canvas.current!.parentElement!;
    const watcher = new ResizeObserver(() => setWidth(element.clientWidth));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  const draw = (): void => {
    const now = until ?? session.now();
    const from = seconds ? now - seconds * 1000 : Math.min(now - 1000, events[0]?.time ?? now - 60_000);
    scene.current = { events, rows, from, to: now, width };
    const element = canvas.current;
    if (element) paint(element, scene.current, session.ledger.related.bind(session.ledger), hovered ?? picked, picked);
  };

  useLayoutEffect(draw);
  // Cancelled on a pause, so that a frame requested earlier does not draw over it.
  useLayoutEffect(() => {
    if (until !== null) return undefined;
    let waiting = 0;
    const timer = setInterval(() => (waiting ||= requestAnimationFrame(() => ((waiting = 0), draw()))), DRAW_EVERY);
    return () => {
      clearInterval(timer);
      cancelAnimationFrame(waiting);
    };
  });
  // Also while the timeline is paused.
  useEffect(() => {
    addEventListener("themechange", draw);
    return () => removeEventListener("themechange", draw);
  });

  const at = (event: MouseEvent): Event | null => {
    const box = canvas.current!.getBoundingClientRect();
    return nearest(scene.current, event.clientX - box.left, event.clientY - box.top);
  };
  const lanes = [...rows.keys()];
  return (
    <section class="panel lanes" aria-label="Lanes">
      <div class="lanes-body">
        <ul class="lane-names" aria-label="Lanes of the drawing">
          {lanes.map((lane) => (
            <li key={lane}>
              <Name id={lane === GATEWAY && narrow ? "gateway" : lane} />
            </li>
          ))}
        </ul>
        <div class="lane-box">
          <canvas
            ref={canvas}
            role="img"
            aria-label={`Marks of ${events.length} envelopes in ${lanes.length} lanes; the list below has the same content`}
            style={{ height: `${Math.max(1, lanes.length) * LANE + 18}px` }}
            onMouseMove={(event) => {
              const mark = at(event);
              if (mark !== hovered) onHover(mark);
            }}
            onMouseLeave={() => onHover(null)}
            onClick={(event) => {
              const mark = at(event);
              if (mark) onPick(mark);
            }}
          />
        </div>
      </div>
      <p class="lane-tip" aria-hidden="true">
        {hovered ? (
          <>
            <span class="num soft">{formatting.clock(hovered.time)}</span> <Name id={hovered.lane} />{" "}
            <bdi class={`verbatim ${hovered.refused ? "bad" : ""}`}>{hovered.kind}</bdi> <bdi class="verbatim soft clip">{hovered.summary}</bdi>
          </>
        ) : (
          <span class="soft">Point at a mark to see the related envelopes. Click it to see its JSON.</span>
        )}
      </p>
    </section>
  );
}

/** A row for each participant: the gateway first, then in the order of their first events, up to a limit. */
function useRows(events: Event[]): Map<string, number> {
  const names = useMemo(() => {
    const counts = new Map<string, number>();
    for (const event of events) counts.set(event.lane, (counts.get(event.lane) ?? 0) + 1);
    let lanes = [...counts.keys()].filter((lane) => lane !== GATEWAY);
    if (lanes.length > MAX_LANES) {
      const busy = new Set([...lanes].sort((one, two) => counts.get(two)! - counts.get(one)!).slice(0, MAX_LANES));
      lanes = lanes.filter((lane) => busy.has(lane));
    }
    return counts.has(GATEWAY) ? [GATEWAY, ...lanes] : lanes;
  }, [events]);
  return useMemo(() => new Map(names.map((lane, index) => [lane, index])), [names.join("\n")]);
}

function place(scene: Scene, event: Event): [number, number] | null {
  const row = scene.rows.get(event.lane);
  if (row === undefined) return null;
  const x = ((event.time - scene.from) / (scene.to - scene.from)) * (scene.width - 16) + 6;
  return [x, row * LANE + LANE / 2];
}

/** The index of the first event at or after a time. */
function firstAt(events: Event[], time: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle]!.time < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function nearest(scene: Scene, x: number, y: number): Event | null {
  const span = (scene.to - scene.from) / Math.max(1, scene.width - 16);
  const time = scene.from + (x - 6) * span;
  let best: Event | null = null;
  let closest = REACH * REACH;
  for (let index = firstAt(scene.events, time - REACH * span); index < scene.events.length; index += 1) {
    const event = scene.events[index]!;
    if (event.time > time + REACH * span) break;
    const spot = place(scene, event);
    if (!spot) continue;
    const distance = (spot[0] - x) ** 2 + (spot[1] - y) ** 2;
    if (distance < closest) [best, closest] = [event, distance];
  }
  return best;
}

function paint(
  element: HTMLCanvasElement,
  scene: Scene,
  related: (event: Event) => Event[],
  focus: Event | null,
  picked: Event | null,
): void {
  const scale = devicePixelRatio || 1;
  const height = Math.max(1, scene.rows.size) * LANE + 18;
  if (element.width !== scene.width * scale) element.width = scene.width * scale;
  if (element.height !== height * scale) element.height = height * scale;
  const context = element.getContext("2d");
  if (!context) return;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, scene.width, height);
  rails(context, scene, height);
  const chain = focus ? new Set([focus, ...related(focus)]) : null;
  for (let index = firstAt(scene.events, scene.from); index < scene.events.length; index += 1) {
    const event = scene.events[index]!;
    const spot = place(scene, event);
    if (!spot) continue;
    context.globalAlpha = chain && !chain.has(event) ? 0.25 : 1;
    mark(context, event.family, event.refused, spot[0], spot[1], 4.5);
  }
  context.globalAlpha = 1;
  if (focus) links(context, scene, focus, related(focus));
  if (picked) ring(context, scene, picked);
}

function rails(context: CanvasRenderingContext2D, scene: Scene, height: number): void {
  context.strokeStyle = colour("line-soft");
  context.lineWidth = 1;
  for (let row = 0; row < scene.rows.size; row += 1) {
    const y = Math.round(row * LANE + LANE / 2) + 0.5;
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(scene.width, y);
    context.stroke();
  }
  context.fillStyle = colour("soft");
  context.font = "11px system-ui, sans-serif";
  const ticks = Math.max(2, Math.min(8, Math.floor(scene.width / 130)));
  for (let tick = 0; tick <= ticks; tick += 1) {
    const x = (tick / ticks) * (scene.width - 16) + 6;
    context.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
    context.fillText(formatting.clock(scene.from + ((scene.to - scene.from) * tick) / ticks, false), x, height - 4);
  }
}

function mark(context: CanvasRenderingContext2D, family: Family, refused: boolean, x: number, y: number, r: number): void {
  context.fillStyle = context.strokeStyle = colour(refused ? "bad" : HUES[family]);
  context.lineWidth = 1.75;
  context.beginPath();
  if (refused) {
    context.moveTo(x - r, y - r);
    context.lineTo(x + r, y + r);
    context.moveTo(x + r, y - r);
    context.lineTo(x - r, y + r);
    context.lineWidth = 2.5;
    context.stroke();
    return;
  }
  outline(context, family, x, y, r);
  if (family === "reasoning" || family === "system") context.stroke();
  else context.fill();
}

/** A shape for each family, so that families differ by more than their colour. */
function outline(context: CanvasRenderingContext2D, family: Family, x: number, y: number, r: number): void {
  if (family === "mcp") context.rect(x - r + 0.5, y - r + 0.5, 2 * r - 1, 2 * r - 1);
  else if (family === "stream") {
    context.moveTo(x - r, y - r);
    context.lineTo(x + r, y);
    context.lineTo(x - r, y + r);
    context.closePath();
  } else if (family === "capability" || family === "space") {
    context.moveTo(x, y - r - 0.5);
    context.lineTo(x + r + 0.5, y);
    context.lineTo(x, y + r + 0.5);
    context.lineTo(x - r - 0.5, y);
    context.closePath();
  } else if (family === "participant") context.rect(x - 1.75, y - r, 3.5, 2 * r);
  else context.arc(x, y, family === "system" || family === "other" ? r - 1.5 : r - 0.5, 0, 2 * Math.PI);
}

function links(context: CanvasRenderingContext2D, scene: Scene, focus: Event, others: Event[]): void {
  const start = place(scene, focus);
  if (!start) return;
  context.strokeStyle = colour("accent");
  context.lineWidth = 1.5;
  for (const other of others) {
    const end = place(scene, other);
    if (!end) continue;
    const bend = Math.max(18, Math.abs(end[0] - start[0]) / 2);
    const right = end[0] >= start[0] ? 1 : -1;
    context.beginPath();
    context.moveTo(start[0], start[1]);
    context.bezierCurveTo(start[0] + bend * right, start[1], end[0] - bend * right, end[1], end[0], end[1]);
    context.stroke();
  }
}

function ring(context: CanvasRenderingContext2D, scene: Scene, event: Event): void {
  const spot = place(scene, event);
  if (!spot) return;
  context.strokeStyle = colour("ink");
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(spot[0], spot[1], 8, 0, 2 * Math.PI);
  context.stroke();
}

/** The same shapes, for use in text. */
export function Shape({ family, refused }: { family: Family; refused?: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    const draw = (): void => {
      const element = canvas.current;
      const context = element?.getContext("2d");
      if (!element || !context) return;
      const scale = devicePixelRatio || 1;
      element.width = element.height = 12 * scale;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      mark(context, family, refused ?? false, 6, 6, 4);
    };
    draw();
    addEventListener("themechange", draw);
    return () => removeEventListener("themechange", draw);
  }, [family, refused]);
  return <canvas ref={canvas} class="shape" aria-hidden="true" />;
}
