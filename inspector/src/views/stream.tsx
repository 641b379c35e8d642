// One stream: its description, traffic, gaps, and the timeline of its owner and writers.

import { useEffect, useState } from "preact/hooks";
import type { Flow } from "../model/activity";
import type { StreamEntry } from "../model/fold";
import { Plot } from "../ui/draw";
import { hrefOf, useInterval, useSession, useTopics } from "../ui/hooks";
import { EmptyState, Figure, Name, Status } from "../ui/parts";
import { Tree } from "../ui/tree";
import * as formatting from "../ui/formatting";
import { StreamActions } from "./acting";
import { Formats } from "./formats";
import { Frames } from "./frames";
import { Ribbon } from "./ribbon";
import { describe } from "./space";

export function StreamPage({ id }: { id: string }) {
  const session = useTopics("space", "history");
  const ended = session.ended.get(id);
  const entry = session.view.streams.get(id) ?? ended?.entry;
  if (!entry) {
    return (
      <div class="view">
        <header class="view-head">
          <h1 class="verbatim">{id}</h1>
        </header>
        <EmptyState title="No such open stream">
          The stream has ended or never existed. <a href={hrefOf("streams")}>All open streams</a>
        </EmptyState>
        <Ribbon id={id} />
      </div>
    );
  }
  const open = session.view.streams.has(id);
  const flow = session.activity.of(id);
  return (
    <div class="view stream">
      <header class="view-head">
        <a class="back" href={hrefOf("streams")} aria-label="All streams">
          ←
        </a>
        <h1 class="verbatim">{id}</h1>
        <Status status={open ? entry.stream.status : "ended"} />
        {ended && !open && <span class="soft verbatim">{ended.why}</span>}
      </header>
      {describe(entry) && <p class="lead verbatim">{describe(entry)}</p>}
      <Facts entry={entry} />
      <FlowFigures flow={flow} entry={entry} />
      <Bandwidth flow={flow} />
      <Ribbon id={id} />
      {open && session.canAct && <StreamActions entry={entry} />}
      <Frames entry={entry} flow={flow} />
      <Gaps flow={flow} />
      <Formats entry={entry} />
      <section class="panel">
        <header class="panel-head">
          <h2>Opening request</h2>
        </header>
        <div class="code">
          <Tree value={entry} open={1} />
        </div>
      </section>
    </div>
  );
}

function Facts({ entry }: { entry: StreamEntry }) {
  const target = entry["target"];
  return (
    <dl class="facts">
      <div>
        <dt>Owner</dt>
        <dd>
          <Name id={entry.owner} />
          {!entry.stream.owner_connected && <span class="soft"> away</span>}
        </dd>
      </div>
      <div>
        <dt>May write</dt>
        <dd class="names">
          {entry.authorized_writers.slice(0, 12).map((writer) => (
            <Name key={writer} id={writer} />
          ))}
          {entry.authorized_writers.length > 12 && <span class="soft">and {entry.authorized_writers.length - 12} more</span>}
        </dd>
      </div>
      {Array.isArray(target) && (
        <div>
          <dt>Only for</dt>
          <dd class="names">
            {target.map((id) => (
              <Name key={String(id)} id={String(id)} />
            ))}
          </dd>
        </div>
      )}
      <div>
        <dt>Opened</dt>
        <dd>
          <time dateTime={entry.created}>{formatting.clock(Date.parse(entry.created), false)}</time> by <bdi class="verbatim">{entry.stream.creator}</bdi>
        </dd>
      </div>
      <div>
        <dt>Namespace</dt>
        <dd>
          <code class="verbatim">{entry.stream.namespace}</code>
        </dd>
      </div>
    </dl>
  );
}

function FlowFigures({ flow, entry }: { flow: Flow; entry: StreamEntry }) {
  const session = useSession();
  useInterval(500);
  const now = session.now();
  return (
    <dl class="figures">
      <Figure label="frames a second" value={formatting.number(Number(flow.rate(now, "frames").toFixed(1)))} />
      <Figure label="a second" value={formatting.size(flow.rate(now, "bytes"))} />
      <Figure label="frames since the opening" value={formatting.count(entry.stream.frames)} />
      <Figure label="received by this page" value={formatting.size(flow.bytes)} />
      <Figure label="missing" value={formatting.count(flow.missing)} tone={flow.missing ? "bad" : undefined} />
    </dl>
  );
}

const SECONDS = 90;

function Bandwidth({ flow }: { flow: Flow }) {
  const session = useSession();
  useInterval(1000);
  const now = session.now();
  const end = Math.floor(now / 1000);
  const times = Array.from({ length: SECONDS }, (_, index) => end - SECONDS + index);
  return (
    <section class="panel">
      <Plot
        label="Bytes a second, the last 90 seconds"
        lines={[{ label: "bytes a second", hue: "accent" }]}
        data={[times, flow.series(now, SECONDS, "bytes")]}
        format={(value) => formatting.size(value)}
        height={130}
        fromZero
      />
    </section>
  );
}

function Gaps({ flow }: { flow: Flow }) {
  const session = useSession();
  useInterval(500);
  const [count, setCount] = useState(20);
  useEffect(() => setCount(20), [flow]);
  const gaps = [...flow.gaps].reverse();
  return (
    <section class="panel" aria-labelledby="gaps-title">
      <header class="panel-head">
        <h2 id="gaps-title">Gaps</h2>
        <span class={flow.missing ? "bad" : "soft"}>{flow.missing ? `${formatting.count(flow.missing)} missing` : "none seen"}</span>
        {!session.canAct && <span class="soft">The gateway does not report to observers which frames they were too slow for.</span>}
      </header>
      {gaps.length > 0 && (
        <div class="table-wrap" tabIndex={0} role="region" aria-label="Gaps">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Time</th>
                <th scope="col">Range</th>
                <th scope="col" class="num">
                  Missing
                </th>
                <th scope="col">Cause</th>
              </tr>
            </thead>
            <tbody>
              {gaps.slice(0, count).map((gap, index) => (
                <tr key={gaps.length - index} class="gap">
                  <td>{formatting.clock(gap.time)}</td>
                  <td>
                    {gap.writer === null && !gap.away ? "frames" : "sequence"} {formatting.count(gap.from)} to {formatting.count(gap.to)}
                  </td>
                  <td class="num">{formatting.count(gap.missing)}</td>
                  <td>
                    {gap.writer === null ? (
                      gap.away ? "missed while this page was not connected" : "this page was too slow to receive them"
                    ) : (
                      <>
                        skipped by <Name id={gap.writer} />
                      </>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {gaps.length > count && (
            <button type="button" class="quiet" onClick={() => setCount(count + 100)}>
              {gaps.length - count} more
            </button>
          )}
        </div>
      )}
    </section>
  );
}
