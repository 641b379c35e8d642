// One complete envelope: its JSON and the related envelopes.

import { useMemo } from "preact/hooks";
import type { Event } from "../model/ledger";
import { hrefOf, useTopics } from "../ui/hooks";
import { Name } from "../ui/parts";
import { Json } from "../ui/tree";
import * as formatting from "../ui/formatting";
import { Shape } from "./lanes";

export function Details({ event, onPick, onClose }: { event: Event; onPick: (event: Event) => void; onClose: () => void }) {
  const session = useTopics("ledger");
  // Rendered once, although events are added to the timeline.
  const json = useMemo(() => <Json text={event.text} open={3} />, [event]);
  const related = session.ledger.related(event);
  return (
    <aside class="panel details" aria-label="The envelope">
      <header class="panel-head">
        <Shape family={event.family} refused={event.refused} />
        <h2 class={`verbatim ${event.refused ? "bad" : ""}`}>{event.kind}</h2>
        <span class="grow" />
        <button type="button" class="quiet" aria-label="Close the envelope" onClick={onClose}>
          ✕
        </button>
      </header>
      <dl class="facts small">
        <div>
          <dt>From</dt>
          <dd>
            <Name id={event.lane} />
          </dd>
        </div>
        <div>
          <dt>Time</dt>
          <dd>
            <time dateTime={formatting.iso(event.time)}>{formatting.clock(event.time)}</time>
          </dd>
        </div>
        {event.position !== null && (
          <div>
            <dt>Position</dt>
            <dd>{formatting.count(event.position)}</dd>
          </div>
        )}
        {event.streamId !== null && (
          <div>
            <dt>Stream</dt>
            <dd>
              <a class="verbatim" href={hrefOf("streams", event.streamId)}>
                {event.streamId}
              </a>
            </dd>
          </div>
        )}
      </dl>
      {related.length > 0 && (
        <div class="related">
          <h3>Related</h3>
          <ul>
            {related.slice(0, 20).map((other) => (
              <li key={other.key}>
                <button type="button" class="quiet" onClick={() => onPick(other)}>
                  <Shape family={other.family} refused={other.refused} /> <bdi class="verbatim">{other.kind}</bdi> <Name id={other.lane} />
                </button>
              </li>
            ))}
          </ul>
        </div>
      )}
      <div class="code">{json}</div>
    </aside>
  );
}
