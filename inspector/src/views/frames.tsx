// The frames of a stream as they arrive: a list, the decoded content, and a plot of their numbers.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Flow, RecentFrame } from "../model/activity";
import type { StreamEntry } from "../model/fold";
import { decode, mimeOf, numbersIn, sizeOf, type Body, type Decoded } from "../model/frames";
import { Plot } from "../ui/draw";
import { useInterval } from "../ui/hooks";
import { EmptyState, Name } from "../ui/parts";
import { Hex, Tree } from "../ui/tree";
import { itemAfterKey, Virtual } from "../ui/virtual";
import * as formatting from "../ui/formatting";

const PREVIEW = 140;
const MAX_LINES = 8;
const MAX_POINTS = 400;
const WHOLE = 256 * 1024;

export function Frames({ entry, flow }: { entry: StreamEntry; flow: Flow }) {
  const [paused, setPaused] = useState<RecentFrame[] | null>(null);
  const [picked, setPicked] = useState<RecentFrame | null>(null);
  useInterval(500);
  useEffect(() => {
    flow.watched = true;
    return () => {
      flow.watched = false;
    };
  }, [flow]);
  const frames = paused ?? flow.recent;
  const newest = useMemo(() => [...frames].reverse(), [frames, frames.length, frames[frames.length - 1]]);
  const shown = picked ?? newest[0] ?? null;
  if (!newest.length) {
    return (
      <section class="panel">
        <header class="panel-head">
          <h2>Frames</h2>
        </header>
        <EmptyState title="No frames yet">{entry["target"] ? "Only the targets of this stream receive its frames." : "Frames appear here as they arrive."}</EmptyState>
      </section>
    );
  }
  return (
    <>
      <Numbers entry={entry} frames={frames} />
      <section class="panel" aria-labelledby="frames-title">
        <header class="panel-head">
          <h2 id="frames-title">Frames</h2>
          <span class="soft">the last {formatting.count(newest.length)}</span>
          <span class="grow" />
          {picked && (
            <button type="button" class="quiet" onClick={() => setPicked(null)}>
              Follow the newest
            </button>
          )}
          <button type="button" aria-pressed={paused !== null} onClick={() => setPaused(paused ? null : [...flow.recent])}>
            {paused ? "Resume" : "Pause"}
          </button>
        </header>
        <div class="split">
          <Virtual
            items={newest}
            height={34}
            label="Frames, the newest first"
            role="listbox"
            kind="frame-list"
            newestFirst
            keyOf={(frame) => frame.number}
            active={shown}
            idOf={(frame) => `frame-${frame.number}`}
            reveal={picked !== null}
            onKey={(event) => {
              const next = itemAfterKey(newest, shown, event, (one, two) => one.number - two.number);
              if (next) setPicked(next);
            }}
            row={(frame) => (
              <div
                key={frame.number}
                id={`frame-${frame.number}`}
                role="option"
                aria-selected={frame === shown}
                class="frame-row"
                onClick={() => setPicked(frame)}
              >
                <span class="num soft">{formatting.count(frame.number)}</span>
                <span class="num soft">{formatting.clock(frame.time)}</span>
                <bdi class="verbatim clip mono">{preview(frame.body)}</bdi>
              </div>
            )}
          />
          {shown && <Detail frame={shown} entry={entry} />}
        </div>
      </section>
    </>
  );
}

function preview(body: Body): string {
  if (typeof body === "string") return body.slice(0, PREVIEW);
  const decoded = decode(body.subarray(0, PREVIEW), "");
  if (decoded.as === "text") return decoded.text;
  if (decoded.as === "json") return new TextDecoder().decode(body.subarray(0, PREVIEW));
  return [...body.subarray(0, 24)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

function Detail({ frame, entry }: { frame: RecentFrame; entry: StreamEntry }) {
  const mime = mimeOf(entry, frame.formatId);
  const decoded = useMemo(() => (frame.size > WHOLE ? truncated(frame.body) : decode(frame.body, mime)), [frame, mime]);
  // Rendered once per frame, not at each interval.
  const content = useMemo(() => <FrameContent decoded={decoded} />, [decoded]);
  return (
    <div class="detail" role="region" aria-label="The frame">
      <dl class="facts small">
        <div>
          <dt>Number</dt>
          <dd>{formatting.count(frame.number)}</dd>
        </div>
        <div>
          <dt>Size</dt>
          <dd>{formatting.size(frame.size)}</dd>
        </div>
        <div>
          <dt>Read as</dt>
          <dd>
            {decoded.as === "hex" ? "bytes" : decoded.as === "json" ? "JSON" : "text"} {mime && <bdi class="soft verbatim">{mime}</bdi>}
          </dd>
        </div>
        {frame.writer !== undefined && (
          <div>
            <dt>Writer, sequence</dt>
            <dd>
              <Name id={frame.writer} /> {formatting.count(frame.sequence ?? 0)}
            </dd>
          </div>
        )}
      </dl>
      {content}
    </div>
  );
}

function truncated(body: Body): Decoded {
  return typeof body === "string" ? { as: "text", text: formatting.truncate(body, WHOLE) } : { as: "hex", bytes: body };
}

function FrameContent({ decoded }: { decoded: Decoded }) {
  if (decoded.as === "hex") return <Hex bytes={decoded.bytes} />;
  if (decoded.as === "text") {
    return (
      <pre class="text verbatim" tabIndex={0} aria-label="Text of the frame">
        {decoded.text}
      </pre>
    );
  }
  return (
    <div class="code">
      <Tree value={decoded.value} open={4} />
    </div>
  );
}

/** A plot of the numbers in the last frames, with one line per path. Each frame is decoded once. */
function Numbers({ entry, frames }: { entry: StreamEntry; frames: readonly RecentFrame[] }) {
  const cache = useRef(new Map<RecentFrame, [string, number][]>());
  const [off, setOff] = useState<ReadonlySet<string>>(new Set());
  const last = frames.slice(-MAX_POINTS);
  const cached = cache.current;
  const fresh = new Map<RecentFrame, [string, number][]>();
  const names = new Map<string, number>();
  for (const frame of last) {
    let numbers = cached.get(frame);
    if (!numbers) {
      const decoded = sizeOf(frame.body) > WHOLE ? null : decode(frame.body, mimeOf(entry, frame.formatId));
      numbers = decoded?.as === "json" ? numbersIn(decoded.value) : [];
    }
    fresh.set(frame, numbers);
    for (const [name] of numbers) if (!names.has(name)) names.set(name, names.size);
  }
  cache.current = fresh;
  const lines = [...names.keys()].filter((name) => !CLOCKS.test(name)).slice(0, MAX_LINES);
  const shown = lines.filter((name) => !off.has(name));
  if (!lines.length || last.length < 2) return null;
  const columns: (number | null)[][] = shown.map(() => []);
  const times: number[] = [];
  for (const frame of last) {
    times.push(frame.time / 1000);
    const numbers = new Map(fresh.get(frame));
    shown.forEach((name, index) => columns[index]!.push(numbers.get(name) ?? null));
  }
  const data = [times, ...columns] as uPlot.AlignedData;
  const toggle = (name: string): void => {
    const next = new Set(off);
    if (!next.delete(name)) next.add(name);
    setOff(next);
  };
  return (
    <section class="panel">
      <Plot
        label="Numbers in the frames"
        lines={shown.map((name) => ({ label: name, hue: `c${lines.indexOf(name)}` }))}
        data={data}
        format={formatting.number}
      />
      <div class="chips toggles" role="group" aria-label="Lines shown">
        {lines.map((name) => (
          <button key={name} type="button" class="chip" aria-pressed={!off.has(name)} onClick={() => toggle(name)}>
            <bdi class="verbatim">{name}</bdi>
          </button>
        ))}
      </div>
    </section>
  );
}

/** Timestamps are omitted, because their size would flatten all other lines. */
const CLOCKS = /(^|[._])(ts|time|timestamp|epoch|seq|sequence)(_?(ms|us|ns|s))?$/i;
