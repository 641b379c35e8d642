// One envelope in full: its JSON, and what it belongs to.

import { useMemo } from "preact/hooks";
import type { Event } from "../model/ledger";
import { hrefOf, useTopics } from "../ui/hooks";
import { Name } from "../ui/parts";
import { Json } from "../ui/tree";
import * as words from "../ui/words";
import { Shape } from "./lanes";

export function Details({ event, onPick, onClose }: { event: Event; onPick: (event: Event) => void; onClose: () => void }) {
  const session = useTopics("ledger");
  // Made once: others are added to the timeline while one reads.
  const json = useMemo(() => <Json text={event.text} open={3} />, [event]);
  const related = session.ledger.related(event);
  return (
    <aside class="panel details" aria-label="The envelope">
      <header class="panel-head">
        <Shape family={event.family} refused={event.refused} />
        <h2 class={`said ${event.refused ? "bad" : ""}`}>{event.kind}</h2>
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
            <time dateTime={words.iso(event.time)}>{words.clock(event.time)}</time>
          </dd>
        </div>
        {event.position !== null && (
          <div>
            <dt>Position</dt>
            <dd>{words.count(event.position)}</dd>
          </div>
        )}
        {event.streamId !== null && (
          <div>
            <dt>Stream</dt>
            <dd>
              <a class="said" href={hrefOf("streams", event.streamId)}>
                {event.streamId}
              </a>
            </dd>
          </div>
        )}
      </dl>
      {related.length > 0 && (
        <div class="related">
          <h3>Belongs to</h3>
          <ul>
            {related.slice(0, 20).map((each) => (
              <li key={each.key}>
                <button type="button" class="quiet" onClick={() => onPick(each)}>
                  <Shape family={each.family} refused={each.refused} /> <bdi class="said">{each.kind}</bdi> <Name id={each.lane} />
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
