// The overview of a space: participants and their capabilities, open streams and their traffic.

import { useEffect, useState } from "preact/hooks";
import type { StreamEntry } from "../model/fold";
import { formatName } from "../model/frames";
import type { Session } from "../session";
import { Spark } from "../ui/draw";
import { hrefOf, onInterval, useMedia, useInterval, useTopics } from "../ui/hooks";
import { EmptyState, Figure, Name, Status } from "../ui/parts";
import { Virtual } from "../ui/virtual";
import * as formatting from "../ui/formatting";
import { ChatBox, InviteButton } from "./acting";
import { Participants } from "./participants";

export function SpaceView({ only }: { only: "streams" | null }) {
  return (
    <div class={`view space ${only === "streams" ? "wide-streams" : ""}`}>
      <header class="view-head">
        <h1>{only === "streams" ? "Streams" : "Space"}</h1>
        {only === null && <InviteButton />}
      </header>
      <Figures />
      <div class="columns">
        <Streams />
        {only === null && (
          <div class="column">
            <Participants />
            <ChatBox />
          </div>
        )}
      </div>
    </div>
  );
}

function Figures() {
  const session = useTopics("space");
  useInterval(1000);
  const now = session.now();
  const total = session.activity.total;
  const present = session.view.participants.size + (session.canAct ? 1 : 0);
  let live = 0;
  for (const stream of session.view.streams.values()) if (stream.stream.status === "live") live += 1;
  return (
    <dl class="figures">
      <Figure label="participants present" value={formatting.count(present)} />
      <Figure label={live === session.view.streams.size ? "streams live" : `of ${session.view.streams.size} streams live`} value={formatting.count(live)} />
      <Figure label="frames a second" value={formatting.count(total.rate(now, "frames"))} />
      <Figure label="a second" value={formatting.size(total.rate(now, "bytes"))} />
      <Figure label="envelopes seen" value={formatting.count(session.ledger.events.length + session.ledger.deleted)} />
    </dl>
  );
}

type Order = "created" | "rate" | "name" | "owner";

function Streams() {
  const session = useTopics("space");
  const [query, setQuery] = useState("");
  const [order, setOrder] = useState<Order>("created");
  const narrow = useMedia("(max-width: 720px)");
  const [, setTick] = useState(0);
  // Sorting by rate changes the order of rows; otherwise each row updates itself.
  useEffect(() => (order === "rate" ? onInterval(1000, () => setTick((count) => count + 1)) : undefined), [order]);
  const items = sorted(session, query, order);
  return (
    <section class="panel streams" aria-labelledby="streams-title">
      <header class="panel-head">
        <h2 id="streams-title">Open streams</h2>
        <span class="grow" />
        <input
          type="search"
          placeholder="Filter by id, owner, text"
          aria-label="Filter streams"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
        <select aria-label="Order of streams" value={order} onChange={(event) => setOrder(event.currentTarget.value as Order)}>
          <option value="created">oldest first</option>
          <option value="rate">busiest first</option>
          <option value="name">by id</option>
          <option value="owner">by owner</option>
        </select>
      </header>
      {items.length ? (
        <Virtual
          items={items}
          height={narrow ? 84 : 52}
          label={`${items.length} streams`}
          role="table"
          kind="stream-table"
          fit={narrow ? 2 : 35}
          keyOf={(stream) => stream.stream_id}
          head={
            <div role="rowgroup" class="stream-head">
              <div role="row" class="stream-row">
                {["Stream", "Owner", "Format", "Rate", "Seen", "Last minute"].map((title) => (
                  <span role="columnheader" key={title}>
                    {title}
                  </span>
                ))}
              </div>
            </div>
          }
          row={(stream) => <StreamRow key={stream.stream_id} entry={stream} session={session} />}
        />
      ) : (
        <EmptyState title={query ? "No stream matches the filter" : "No open streams"}>
          {query ? null : "A stream appears here as soon as a participant opens one."}
        </EmptyState>
      )}
    </section>
  );
}

function sorted(session: Session, query: string, order: Order): StreamEntry[] {
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  const streams = [...session.view.streams.values()].filter((stream) => {
    if (!terms.length) return true;
    const text = `${stream.stream_id} ${stream.owner} ${describe(stream)} ${formatName(stream)} ${stream.stream.status}`.toLowerCase();
    return terms.every((term) => text.includes(term));
  });
  const now = session.now();
  if (order === "name") streams.sort((one, two) => one.stream_id.localeCompare(two.stream_id, "en", { numeric: true }));
  if (order === "owner") streams.sort((one, two) => one.owner.localeCompare(two.owner));
  if (order === "rate") {
    const rates = new Map(streams.map((stream) => [stream, session.activity.flows.get(stream.stream_id)?.rate(now, "frames") ?? 0]));
    streams.sort((one, two) => rates.get(two)! - rates.get(one)!);
  }
  return streams;
}

/** The description in the stream's opening request. */
export function describe(entry: StreamEntry): string {
  for (const name of ["description", "intent", "name", "title"]) {
    const text = entry[name];
    if (typeof text === "string" && text) return text;
  }
  return "";
}

function StreamRow({ entry, session }: { entry: StreamEntry; session: Session }) {
  useInterval(500);
  const flow = session.activity.flows.get(entry.stream_id);
  const now = session.now();
  const others = entry.authorized_writers.length - 1;
  return (
    <div role="row" class="stream-row">
      <span role="cell" class="cell-stream">
        <Status status={entry.stream.status} />
        <span class="cell-lines">
          <a class="verbatim strong" href={hrefOf("streams", entry.stream_id)}>
            {entry.stream_id}
          </a>
          <bdi class="verbatim soft clip">{describe(entry)}</bdi>
        </span>
      </span>
      <span role="cell" class="cell-owner" title={entry.authorized_writers.join(", ")}>
        <Name id={entry.owner} />
        <span class="soft">
          {entry.stream.owner_connected ? "" : "away, "}
          {others === 0 ? "only writer" : others === 1 ? "and 1 writer" : `and ${others} writers`}
        </span>
      </span>
      <span role="cell" class="cell-format">
        <bdi class="verbatim clip">{formatName(entry)}</bdi>
      </span>
      <span role="cell" class="cell-rate num">{flow ? formatting.rate(flow.rate(now, "frames")) : "–"}</span>
      <span role="cell" class="cell-bytes num">
        {flow ? formatting.size(flow.bytes) : "–"}
        {flow && flow.missing > 0 && <span class="bad"> {formatting.count(flow.missing)} missing</span>}
      </span>
      <span role="cell" class="cell-spark">
        <Spark flow={flow} now={() => session.now()} />
      </span>
    </div>
  );
}
