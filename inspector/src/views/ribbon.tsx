// The ownership ribbon: who owned a stream, and who could write to it, over time.

import { spans, type Span, type Story } from "../model/ownership";
import { hueOf, usePulse, useTopics } from "../ui/hooks";
import { Name } from "../ui/parts";
import * as words from "../ui/words";

const MOST_WRITERS = 24;
const MOST_CHANGES = 50;

export function Ribbon({ id }: { id: string }) {
  const session = useTopics("space", "history");
  usePulse(1000);
  const story = session.ownership.of(id);
  if (!story || !story.moments.length) return null;
  const now = session.now();
  const end = story.ended ?? now;
  const from = Math.min(story.began, story.moments[0]!.time);
  const { owners, writers } = spans(story, now);
  const others = [...writers].slice(0, MOST_WRITERS);
  return (
    <section class="panel ribbon-panel" aria-labelledby="ribbon-title">
      <header class="panel-head">
        <h2 id="ribbon-title">Ownership</h2>
        <span class="soft">over {words.ago(end - from)}</span>
        <span class="grow" />
        {!story.whole && session.past.state === "loaded" && session.past.from > 0 && (
          <button type="button" class="quiet" onClick={() => session.loadEarlier()}>
            Load earlier
          </button>
        )}
      </header>
      <div class="ribbon" role="img" aria-label={spoken(story)}>
        <Row label="owner" spans={owners} from={from} end={end} strong />
        {others.map(([who, each]) => (
          <Row key={who} label={who} spans={each} from={from} end={end} />
        ))}
      </div>
      <div class="ribbon-scale" aria-hidden="true">
        <span>{words.clock(from, false)}</span>
        <span>{words.clock((from + end) / 2, false)}</span>
        <span>{story.ended ? words.clock(end, false) : "now"}</span>
      </div>
      <Changes story={story} />
    </section>
  );
}

function spoken(story: Story): string {
  const owners = [...new Set(story.moments.map((each) => each.owner))];
  return `Owned by ${owners.join(", then ")}. Every change is listed below.`;
}

function Row({ label, spans, from, end, strong }: { label: string; spans: Span[]; from: number; end: number; strong?: boolean }) {
  const whole = Math.max(1, end - from);
  return (
    <div class={`ribbon-row ${strong ? "strong" : ""}`}>
      <bdi class="ribbon-name said">{strong ? "owner" : label}</bdi>
      <div class="track">
        {spans.map((each) => (
          <i
            key={each.from}
            class={`span hue-${hueOf(each.who)}`}
            title={`${each.who}: ${words.clock(each.from)} to ${words.clock(each.to)}`}
            style={{ left: `${((each.from - from) / whole) * 100}%`, width: `${((each.to - each.from) / whole) * 100}%` }}
          >
            {strong && <span>{each.who}</span>}
          </i>
        ))}
      </div>
    </div>
  );
}

function Changes({ story }: { story: Story }) {
  const shown = story.moments.slice(-MOST_CHANGES).reverse();
  return (
    <details class="changes">
      <summary>
        {story.moments.length} {story.moments.length === 1 ? "change" : "changes"}
      </summary>
      <ol class="change-list">
        {shown.map((each, index) => (
          <li key={story.moments.length - index}>
            <time dateTime={words.iso(each.time)}>{words.clock(each.time)}</time>
            <span class="said">{each.why}</span>
            <span class="soft">
              owner <Name id={each.owner} plain />, may write: <bdi class="said">{each.writers.join(", ")}</bdi>
            </span>
          </li>
        ))}
      </ol>
    </details>
  );
}
