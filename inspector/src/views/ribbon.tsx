// The ownership ribbon: a timeline of a stream's owner and writers.

import { spans, type Span, type OwnershipTimeline } from "../model/ownership";
import { hueOf, useInterval, useTopics } from "../ui/hooks";
import { Name } from "../ui/parts";
import * as formatting from "../ui/formatting";

const MAX_WRITERS = 24;
const MAX_CHANGES = 50;

export function Ribbon({ id }: { id: string }) {
  const session = useTopics("space", "history");
  useInterval(1000);
  const timeline = session.ownership.of(id);
  if (!timeline || !timeline.moments.length) return null;
  const now = session.now();
  const end = timeline.ended ?? now;
  const from = Math.min(timeline.opened, timeline.moments[0]!.time);
  const { owners, writers } = spans(timeline, now);
  const others = [...writers].slice(0, MAX_WRITERS);
  return (
    <section class="panel ribbon-panel" aria-labelledby="ribbon-title">
      <header class="panel-head">
        <h2 id="ribbon-title">Ownership</h2>
        <span class="soft">over {formatting.ago(end - from)}</span>
        <span class="grow" />
        {!timeline.complete && session.past.state === "loaded" && session.past.from > 0 && (
          <button type="button" class="quiet" onClick={() => session.loadEarlier()}>
            Load earlier
          </button>
        )}
      </header>
      <div class="ribbon" role="img" aria-label={description(timeline)}>
        <Row label="owner" spans={owners} from={from} end={end} strong />
        {others.map(([who, writerSpans]) => (
          <Row key={who} label={who} spans={writerSpans} from={from} end={end} />
        ))}
      </div>
      <div class="ribbon-scale" aria-hidden="true">
        <span>{formatting.clock(from, false)}</span>
        <span>{formatting.clock((from + end) / 2, false)}</span>
        <span>{timeline.ended ? formatting.clock(end, false) : "now"}</span>
      </div>
      <Changes timeline={timeline} />
    </section>
  );
}

function description(timeline: OwnershipTimeline): string {
  const owners = [...new Set(timeline.moments.map((moment) => moment.owner))];
  return `Owned by ${owners.join(", then ")}. Every change is listed below.`;
}

function Row({ label, spans, from, end, strong }: { label: string; spans: Span[]; from: number; end: number; strong?: boolean }) {
  const duration = Math.max(1, end - from);
  return (
    <div class={`ribbon-row ${strong ? "strong" : ""}`}>
      <bdi class="ribbon-name verbatim">{strong ? "owner" : label}</bdi>
      <div class="track">
        {spans.map((span) => (
          <i
            key={span.from}
            class={`span hue-${hueOf(span.who)}`}
            title={`${span.who}: ${formatting.clock(span.from)} to ${formatting.clock(span.to)}`}
            style={{ left: `${((span.from - from) / duration) * 100}%`, width: `${((span.to - span.from) / duration) * 100}%` }}
          >
            {strong && <span>{span.who}</span>}
          </i>
        ))}
      </div>
    </div>
  );
}

function Changes({ timeline }: { timeline: OwnershipTimeline }) {
  const shown = timeline.moments.slice(-MAX_CHANGES).reverse();
  return (
    <details class="changes">
      <summary>
        {timeline.moments.length} {timeline.moments.length === 1 ? "change" : "changes"}
      </summary>
      <ol class="change-list">
        {shown.map((moment, index) => (
          <li key={timeline.moments.length - index}>
            <time dateTime={formatting.iso(moment.time)}>{formatting.clock(moment.time)}</time>
            <span class="verbatim">{moment.why}</span>
            <span class="soft">
              owner <Name id={moment.owner} plain />, may write: <bdi class="verbatim">{moment.writers.join(", ")}</bdi>
            </span>
          </li>
        ))}
      </ol>
    </details>
  );
}
