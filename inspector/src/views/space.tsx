// The space: who is here and what they may do, which streams are open and what flows in them.

import { useEffect, useState } from "preact/hooks";
import type { StreamEntry } from "../model/fold";
import { formatName } from "../model/frames";
import type { Session } from "../session";
import { Spark } from "../ui/draw";
import { hrefOf, onPulse, useMedia, usePulse, useTopics } from "../ui/hooks";
import { Empty, Figure, Name, Status } from "../ui/parts";
import { Virtual } from "../ui/virtual";
import * as words from "../ui/words";
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
  usePulse(1000);
  const now = session.now();
  const total = session.activity.total;
  const here = session.view.participants.size + (session.acts ? 1 : 0);
  let live = 0;
  for (const each of session.view.streams.values()) if (each.stream.status === "live") live += 1;
  return (
    <dl class="figures">
      <Figure label="participants here" value={words.count(here)} />
      <Figure label={live === session.view.streams.size ? "streams live" : `of ${session.view.streams.size} streams live`} value={words.count(live)} />
      <Figure label="frames a second" value={words.count(total.rate(now, "frames"))} />
      <Figure label="a second" value={words.size(total.rate(now, "bytes"))} />
      <Figure label="envelopes seen" value={words.count(session.ledger.events.length + session.ledger.gone)} />
    </dl>
  );
}

type Order = "created" | "rate" | "name" | "owner";

function Streams() {
  const session = useTopics("space");
  const [wanted, setWanted] = useState("");
  const [order, setOrder] = useState<Order>("created");
  const narrow = useMedia("(max-width: 720px)");
  const [, setBeat] = useState(0);
  // By rate the order itself changes; else rows look after themselves.
  useEffect(() => (order === "rate" ? onPulse(1000, () => setBeat((each) => each + 1)) : undefined), [order]);
  const items = sorted(session, wanted, order);
  return (
    <section class="panel streams" aria-labelledby="streams-title">
      <header class="panel-head">
        <h2 id="streams-title">Open streams</h2>
        <span class="grow" />
        <input
          type="search"
          placeholder="Filter by id, owner, words"
          aria-label="Filter streams"
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
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
          keyOf={(each) => each.stream_id}
          head={
            <div role="rowgroup" class="stream-head">
              <div role="row" class="stream-row">
                {["Stream", "Owner", "Format", "Rate", "Seen", "Last minute"].map((each) => (
                  <span role="columnheader" key={each}>
                    {each}
                  </span>
                ))}
              </div>
            </div>
          }
          row={(each) => <StreamRow key={each.stream_id} entry={each} session={session} />}
        />
      ) : (
        <Empty title={wanted ? "No stream fits the filter" : "No open streams"}>
          {wanted ? null : "A stream appears here as soon as a participant opens one."}
        </Empty>
      )}
    </section>
  );
}

function sorted(session: Session, wanted: string, order: Order): StreamEntry[] {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [...session.view.streams.values()].filter((each) => {
    if (!words.length) return true;
    const text = `${each.stream_id} ${each.owner} ${describe(each)} ${formatName(each)} ${each.stream.status}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const now = session.now();
  if (order === "name") found.sort((one, two) => one.stream_id.localeCompare(two.stream_id, "en", { numeric: true }));
  if (order === "owner") found.sort((one, two) => one.owner.localeCompare(two.owner));
  if (order === "rate") {
    const rates = new Map(found.map((each) => [each, session.activity.flows.get(each.stream_id)?.rate(now, "frames") ?? 0]));
    found.sort((one, two) => rates.get(two)! - rates.get(one)!);
  }
  return found;
}

/** What a stream's own request says of it. */
export function describe(entry: StreamEntry): string {
  for (const name of ["description", "intent", "name", "title"]) {
    const said = entry[name];
    if (typeof said === "string" && said) return said;
  }
  return "";
}

function StreamRow({ entry, session }: { entry: StreamEntry; session: Session }) {
  usePulse(500);
  const flow = session.activity.flows.get(entry.stream_id);
  const now = session.now();
  const others = entry.authorized_writers.length - 1;
  return (
    <div role="row" class="stream-row">
      <span role="cell" class="cell-stream">
        <Status status={entry.stream.status} />
        <span class="cell-lines">
          <a class="said strong" href={hrefOf("streams", entry.stream_id)}>
            {entry.stream_id}
          </a>
          <bdi class="said soft clip">{describe(entry)}</bdi>
        </span>
      </span>
      <span role="cell" class="cell-owner" title={entry.authorized_writers.join(", ")}>
        <Name id={entry.owner} />
        <span class="soft">
          {entry.stream.owner_connected ? "" : "away, "}
          {others === 0 ? "writes alone" : others === 1 ? "and 1 writer" : `and ${others} writers`}
        </span>
      </span>
      <span role="cell" class="cell-format">
        <bdi class="said clip">{formatName(entry)}</bdi>
      </span>
      <span role="cell" class="cell-rate num">{flow ? words.rate(flow.rate(now, "frames")) : "–"}</span>
      <span role="cell" class="cell-bytes num">
        {flow ? words.size(flow.bytes) : "–"}
        {flow && flow.missing > 0 && <span class="bad"> {words.count(flow.missing)} missing</span>}
      </span>
      <span role="cell" class="cell-spark">
        <Spark flow={flow} now={() => session.now()} />
      </span>
    </div>
  );
}
