// The timeline: a lane for each participant, a mark for each envelope, refusals in red, and what answers what.

import { useMemo, useState } from "preact/hooks";
import { FAMILIES, MOST_EVENTS, type Event, type Family } from "../model/ledger";
import type { Session } from "../session";
import { useMedia, useTopics } from "../ui/hooks";
import { Empty, Name } from "../ui/parts";
import { stepped, Virtual } from "../ui/virtual";
import * as words from "../ui/words";
import { Details } from "./details";
import { Lanes, Shape } from "./lanes";

export interface Filter {
  words: string;
  off: ReadonlySet<Family>;
  refusedOnly: boolean;
  lane: string;
}

const NOTHING: Filter = { words: "", off: new Set(), refusedOnly: false, lane: "" };

export function Timeline() {
  const session = useTopics("ledger", "history");
  const [filter, setFilter] = useState<Filter>(NOTHING);
  const [held, setHeld] = useState<{ events: Event[]; until: number } | null>(null);
  const [picked, setPicked] = useState<Event | null>(null);
  const [hovered, setHovered] = useState<Event | null>(null);
  const [seconds, setSeconds] = useState(120);
  const events = useFiltered(held?.events ?? session.ledger.events, filter);
  const newest = useMemo(() => [...events].reverse(), [events]);
  const pause = (): void => setHeld(held ? null : { events: [...session.ledger.events], until: session.now() });
  return (
    <div class="view timeline">
      <header class="view-head">
        <h1>Timeline</h1>
        <span class="soft">
          {words.count(events.length)} of {words.count(session.ledger.events.length)}
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
        <button type="button" aria-pressed={held !== null} onClick={pause}>
          {held ? "Go on" : "Pause"}
        </button>
      </header>
      <Filters session={session} filter={filter} onFilter={setFilter} />
      <Lanes
        events={events}
        seconds={seconds}
        until={held ? held.until : null}
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
    const wanted = filter.words.toLowerCase().split(/\s+/).filter(Boolean);
    if (!wanted.length && !filter.off.size && !filter.refusedOnly && !filter.lane) return [...events];
    return events.filter((each) => {
      if (filter.off.has(each.family) || (filter.refusedOnly && !each.refused)) return false;
      if (filter.lane && each.lane !== filter.lane) return false;
      if (!wanted.length) return true;
      const text = `${each.kind} ${each.lane} ${each.summary} ${each.id ?? ""}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
  }, [events, events.length, last, filter]);
}

function Filters({ session, filter, onFilter }: { session: Session; filter: Filter; onFilter: (filter: Filter) => void }) {
  const lanes = [...new Set([...session.ledger.events.slice(-5000).map((each) => each.lane)])].sort();
  const toggle = (family: Family): void => {
    const off = new Set(filter.off);
    if (!off.delete(family)) off.add(family);
    onFilter({ ...filter, off });
  };
  return (
    <div class="filters">
      <input
        type="search"
        placeholder="Filter by kind, name, words"
        aria-label="Filter envelopes"
        value={filter.words}
        onInput={(event) => onFilter({ ...filter, words: event.currentTarget.value })}
      />
      <select aria-label="Whose" value={filter.lane} onChange={(event) => onFilter({ ...filter, lane: event.currentTarget.value })}>
        <option value="">everybody</option>
        {lanes.map((each) => (
          <option key={each} value={each}>
            {each}
          </option>
        ))}
      </select>
      <div class="chips toggles" role="group" aria-label="Kinds shown">
        {FAMILIES.map((each) => (
          <button key={each} type="button" class="chip" aria-pressed={!filter.off.has(each)} onClick={() => toggle(each)}>
            <Shape family={each} />
            {each}
          </button>
        ))}
        <button
          type="button"
          class="chip only"
          aria-pressed={filter.refusedOnly}
          onClick={() => onFilter({ ...filter, refusedOnly: !filter.refusedOnly })}
        >
          <Shape family="other" refused />
          refusals only
        </button>
      </div>
    </div>
  );
}

function List({ newest, picked, onPick }: { newest: Event[]; picked: Event | null; onPick: (event: Event) => void }) {
  const narrow = useMedia("(max-width: 720px)");
  if (!newest.length) return <Empty title="Nothing was said">Frames are shown with their streams; everything else is shown here.</Empty>;
  return (
    <div class="panel event-panel">
      <Virtual
        items={newest}
        height={narrow ? 56 : 34}
        label="Envelopes, the newest first"
        role="listbox"
        kind="event-list"
        newestFirst
        keyOf={(each) => each.key}
        active={picked}
        idOf={(each) => `event-${each.key}`}
        reveal
        onKey={(event) => {
          const next = stepped(newest, picked, event, (one, two) => one.time - two.time || one.key - two.key);
          if (next) onPick(next);
        }}
        row={(each) => (
          <div
            key={each.key}
            id={`event-${each.key}`}
            role="option"
            aria-selected={each === picked}
            class={`event-row ${each.refused ? "refused" : ""}`}
            onClick={() => onPick(each)}
          >
            <span class="num soft">{words.clock(each.time)}</span>
            <Name id={each.lane} />
            <span class="event-kind">
              <Shape family={each.family} refused={each.refused} />
              <bdi class="said clip">{each.kind}</bdi>
            </span>
            <bdi class="said clip soft">{each.summary}</bdi>
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
  if (state === "no journal") return <p class="soft">This space keeps no journal: what was before you came is not known here.</p>;
  const shown = (position: number): string => `Shown is what the journal has from position ${words.count(position)} on.`;
  if (full) {
    return (
      <p class="soft">
        This page keeps {words.count(MOST_EVENTS)} envelopes and refusals; the oldest go first. {oldest !== null && shown(oldest)}
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
