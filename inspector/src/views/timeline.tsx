// The timeline: a lane for each participant, a mark for each envelope, rejections in red, and links between related envelopes.

import { useMemo, useState } from "preact/hooks";
import { FAMILIES, MAX_EVENTS, type Event, type Family } from "../model/ledger";
import type { Session } from "../session";
import { useMedia, useTopics } from "../ui/hooks";
import { EmptyState, Name } from "../ui/parts";
import { itemAfterKey, Virtual } from "../ui/virtual";
import * as formatting from "../ui/formatting";
import { Details } from "./details";
import { Lanes, Shape } from "./lanes";

export interface Filter {
  text: string;
  off: ReadonlySet<Family>;
  refusedOnly: boolean;
  lane: string;
}

const NO_FILTER: Filter = { text: "", off: new Set(), refusedOnly: false, lane: "" };

export function Timeline() {
  const session = useTopics("ledger", "history");
  const [filter, setFilter] = useState<Filter>(NO_FILTER);
  const [paused, setPaused] = useState<{ events: Event[]; until: number } | null>(null);
  const [picked, setPicked] = useState<Event | null>(null);
  const [hovered, setHovered] = useState<Event | null>(null);
  const [seconds, setSeconds] = useState(120);
  const events = useFiltered(paused?.events ?? session.ledger.events, filter);
  const newest = useMemo(() => [...events].reverse(), [events]);
  const pause = (): void => setPaused(paused ? null : { events: [...session.ledger.events], until: session.now() });
  return (
    <div class="view timeline">
      <header class="view-head">
        <h1>Timeline</h1>
        <span class="soft">
          {formatting.count(events.length)} of {formatting.count(session.ledger.events.length)}
        </span>
        <span class="grow" />
        <label class="inline">
          <span class="hidden">Time shown</span>
          <select value={String(seconds)} onChange={(event) => setSeconds(Number(event.currentTarget.value))}>
            <option value="30">30 seconds</option>
            <option value="120">2 minutes</option>
            <option value="900">15 minutes</option>
            <option value="0">everything</option>
          </select>
        </label>
        <button type="button" aria-pressed={paused !== null} onClick={pause}>
          {paused ? "Resume" : "Pause"}
        </button>
      </header>
      <Filters session={session} filter={filter} onFilter={setFilter} />
      <Lanes
        events={events}
        seconds={seconds}
        until={paused ? paused.until : null}
        picked={picked}
        hovered={hovered}
        onHover={setHovered}
        onPick={setPicked}
      />
      <div class={`split ${picked ? "" : "alone"}`}>
        <List newest={newest} picked={picked} onPick={setPicked} />
        {picked && <Details event={picked} onPick={setPicked} onClose={() => setPicked(null)} />}
      </div>
      <Earlier session={session} />
    </div>
  );
}

function useFiltered(events: Event[], filter: Filter): Event[] {
  const last = events[events.length - 1];
  return useMemo(() => {
    const terms = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!terms.length && !filter.off.size && !filter.refusedOnly && !filter.lane) return [...events];
    return events.filter((event) => {
      if (filter.off.has(event.family) || (filter.refusedOnly && !event.refused)) return false;
      if (filter.lane && event.lane !== filter.lane) return false;
      if (!terms.length) return true;
      const text = `${event.kind} ${event.lane} ${event.summary} ${event.id ?? ""}`.toLowerCase();
      return terms.every((term) => text.includes(term));
    });
  }, [events, events.length, last, filter]);
}

function Filters({ session, filter, onFilter }: { session: Session; filter: Filter; onFilter: (filter: Filter) => void }) {
  const lanes = [...new Set([...session.ledger.events.slice(-5000).map((event) => event.lane)])].sort();
  const toggle = (family: Family): void => {
    const off = new Set(filter.off);
    if (!off.delete(family)) off.add(family);
    onFilter({ ...filter, off });
  };
  return (
    <div class="filters">
      <input
        type="search"
        placeholder="Filter by kind, name, text"
        aria-label="Filter envelopes"
        value={filter.text}
        onInput={(event) => onFilter({ ...filter, text: event.currentTarget.value })}
      />
      <select aria-label="Participant" value={filter.lane} onChange={(event) => onFilter({ ...filter, lane: event.currentTarget.value })}>
        <option value="">all participants</option>
        {lanes.map((lane) => (
          <option key={lane} value={lane}>
            {lane}
          </option>
        ))}
      </select>
      <div class="chips toggles" role="group" aria-label="Kinds shown">
        {FAMILIES.map((family) => (
          <button key={family} type="button" class="chip" aria-pressed={!filter.off.has(family)} onClick={() => toggle(family)}>
            <Shape family={family} />
            {family}
          </button>
        ))}
        <button
          type="button"
          class="chip only"
          aria-pressed={filter.refusedOnly}
          onClick={() => onFilter({ ...filter, refusedOnly: !filter.refusedOnly })}
        >
          <Shape family="other" refused />
          rejections only
        </button>
      </div>
    </div>
  );
}

function List({ newest, picked, onPick }: { newest: Event[]; picked: Event | null; onPick: (event: Event) => void }) {
  const narrow = useMedia("(max-width: 720px)");
  if (!newest.length) return <EmptyState title="No envelopes">Frames are shown on the page of their stream. All other envelopes are shown here.</EmptyState>;
  return (
    <div class="panel event-panel">
      <Virtual
        items={newest}
        height={narrow ? 56 : 34}
        label="Envelopes, the newest first"
        role="listbox"
        kind="event-list"
        newestFirst
        keyOf={(event) => event.key}
        active={picked}
        idOf={(event) => `event-${event.key}`}
        reveal
        onKey={(event) => {
          const next = itemAfterKey(newest, picked, event, (one, two) => one.time - two.time || one.key - two.key);
          if (next) onPick(next);
        }}
        row={(event) => (
          <div
            key={event.key}
            id={`event-${event.key}`}
            role="option"
            aria-selected={event === picked}
            class={`event-row ${event.refused ? "refused" : ""}`}
            onClick={() => onPick(event)}
          >
            <span class="num soft">{formatting.clock(event.time)}</span>
            <Name id={event.lane} />
            <span class="event-kind">
              <Shape family={event.family} refused={event.refused} />
              <bdi class="verbatim clip">{event.kind}</bdi>
            </span>
            <bdi class="verbatim clip soft">{event.summary}</bdi>
          </div>
        )}
      />
    </div>
  );
}

function Earlier({ session }: { session: Session }) {
  const { state, from } = session.past;
  const { full, oldest } = session.ledger;
  if (state === "loading") return <p class="soft">Reading the journal…</p>;
  if (state === "no journal") return <p class="soft">This space has no journal: envelopes from before you connected are not available.</p>;
  const shown = (position: number): string => `Shows the journal from position ${formatting.count(position)}.`;
  if (full) {
    return (
      <p class="soft">
        This page stores {formatting.count(MAX_EVENTS)} envelopes and rejections, and deletes the oldest first. {oldest !== null && shown(oldest)}
      </p>
    );
  }
  if (state === "none yet" || (state === "loaded" && from <= 0)) return null;
  return (
    <p>
      <button type="button" onClick={() => session.loadEarlier()}>
        Load earlier
      </button>{" "}
      {state === "loaded" && <span class="soft">{shown(from)}</span>}
    </p>
  );
}
