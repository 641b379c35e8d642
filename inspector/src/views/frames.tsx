// The frames of a stream as they come: listed, decoded by their format, and their numbers drawn.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Flow, Kept } from "../model/activity";
import type { StreamEntry } from "../model/fold";
import { decode, mimeOf, numbersIn, sizeOf, type Body, type Decoded } from "../model/frames";
import { Plot } from "../ui/draw";
import { usePulse } from "../ui/hooks";
import { Empty, Name } from "../ui/parts";
import { Hex, Tree } from "../ui/tree";
import { stepped, Virtual } from "../ui/virtual";
import * as words from "../ui/words";

const PREVIEW = 140;
const MOST_LINES = 8;
const MOST_POINTS = 400;
const WHOLE = 256 * 1024;

export function Frames({ entry, flow }: { entry: StreamEntry; flow: Flow }) {
  const [held, setHeld] = useState<Kept[] | null>(null);
  const [picked, setPicked] = useState<Kept | null>(null);
  usePulse(500);
  useEffect(() => {
    flow.watched = true;
    return () => {
      flow.watched = false;
    };
  }, [flow]);
  const kept = held ?? flow.kept;
  const newest = useMemo(() => [...kept].reverse(), [kept, kept.length, kept[kept.length - 1]]);
  const shown = picked ?? newest[0] ?? null;
  if (!newest.length) {
    return (
      <section class="panel">
        <header class="panel-head">
          <h2>Frames</h2>
        </header>
        <Empty title="No frames yet">{entry["target"] ? "Its frames go to its targets only." : "They appear here as they come."}</Empty>
      </section>
    );
  }
  return (
    <>
      <Numbers entry={entry} kept={kept} />
      <section class="panel" aria-labelledby="frames-title">
        <header class="panel-head">
          <h2 id="frames-title">Frames</h2>
          <span class="soft">the last {words.count(newest.length)}</span>
          <span class="grow" />
          {picked && (
            <button type="button" class="quiet" onClick={() => setPicked(null)}>
              Follow the newest
            </button>
          )}
          <button type="button" aria-pressed={held !== null} onClick={() => setHeld(held ? null : [...flow.kept])}>
            {held ? "Go on" : "Pause"}
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
            keyOf={(each) => each.number}
            active={shown}
            idOf={(each) => `frame-${each.number}`}
            reveal={picked !== null}
            onKey={(event) => {
              const next = stepped(newest, shown, event, (one, two) => one.number - two.number);
              if (next) setPicked(next);
            }}
            row={(each) => (
              <div
                key={each.number}
                id={`frame-${each.number}`}
                role="option"
                aria-selected={each === shown}
                class="frame-row"
                onClick={() => setPicked(each)}
              >
                <span class="num soft">{words.count(each.number)}</span>
                <span class="num soft">{words.clock(each.time)}</span>
                <bdi class="said clip mono">{preview(each.body)}</bdi>
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
  return [...body.subarray(0, 24)].map((each) => each.toString(16).padStart(2, "0")).join(" ");
}

function Detail({ frame, entry }: { frame: Kept; entry: StreamEntry }) {
  const mime = mimeOf(entry, frame.formatId);
  const decoded = useMemo(() => (frame.size > WHOLE ? cut(frame.body) : decode(frame.body, mime)), [frame, mime]);
  // Made once for each frame, and not at each pulse.
  const shown = useMemo(() => <Shown decoded={decoded} />, [decoded]);
  return (
    <div class="detail" role="region" aria-label="The frame">
      <dl class="facts small">
        <div>
          <dt>Number</dt>
          <dd>{words.count(frame.number)}</dd>
        </div>
        <div>
          <dt>Size</dt>
          <dd>{words.size(frame.size)}</dd>
        </div>
        <div>
          <dt>Read as</dt>
          <dd>
            {decoded.as === "hex" ? "bytes" : decoded.as === "json" ? "JSON" : "text"} {mime && <bdi class="soft said">{mime}</bdi>}
          </dd>
        </div>
        {frame.writer !== undefined && (
          <div>
            <dt>Writer, sequence</dt>
            <dd>
              <Name id={frame.writer} /> {words.count(frame.sequence ?? 0)}
            </dd>
          </div>
        )}
      </dl>
      {shown}
    </div>
  );
}

function cut(body: Body): Decoded {
  return typeof body === "string" ? { as: "text", text: words.cut(body, WHOLE) } : { as: "hex", bytes: body };
}

function Shown({ decoded }: { decoded: Decoded }) {
  if (decoded.as === "hex") return <Hex bytes={decoded.bytes} />;
  if (decoded.as === "text") {
    return (
      <pre class="text said" tabIndex={0} aria-label="Text of the frame">
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

/** The numbers in the last frames, a line for each place that has one. Frames are read once. */
function Numbers({ entry, kept }: { entry: StreamEntry; kept: readonly Kept[] }) {
  const read = useRef(new Map<Kept, [string, number][]>());
  const [off, setOff] = useState<ReadonlySet<string>>(new Set());
  const last = kept.slice(-MOST_POINTS);
  const memory = read.current;
  const fresh = new Map<Kept, [string, number][]>();
  const names = new Map<string, number>();
  for (const frame of last) {
    let found = memory.get(frame);
    if (!found) {
      const decoded = sizeOf(frame.body) > WHOLE ? null : decode(frame.body, mimeOf(entry, frame.formatId));
      found = decoded?.as === "json" ? numbersIn(decoded.value) : [];
    }
    fresh.set(frame, found);
    for (const [name] of found) if (!names.has(name)) names.set(name, names.size);
  }
  read.current = fresh;
  const lines = [...names.keys()].filter((each) => !CLOCKS.test(each)).slice(0, MOST_LINES);
  const shown = lines.filter((each) => !off.has(each));
  if (!lines.length || last.length < 2) return null;
  const columns: (number | null)[][] = shown.map(() => []);
  const times: number[] = [];
  for (const frame of last) {
    times.push(frame.time / 1000);
    const found = new Map(fresh.get(frame));
    shown.forEach((name, index) => columns[index]!.push(found.get(name) ?? null));
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
        lines={shown.map((each) => ({ label: each, hue: `c${lines.indexOf(each)}` }))}
        data={data}
        say={words.number}
      />
      <div class="chips toggles" role="group" aria-label="Lines shown">
        {lines.map((each) => (
          <button key={each} type="button" class="chip" aria-pressed={!off.has(each)} onClick={() => toggle(each)}>
            <bdi class="said">{each}</bdi>
          </button>
        ))}
      </div>
    </section>
  );
}

/** A clock beside other numbers makes flat lines of them. */
const CLOCKS = /(^|[._])(ts|time|timestamp|epoch|seq|sequence)(_?(ms|us|ns|s))?$/i;
