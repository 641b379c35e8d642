// Present and former participants, and what each may send.

import { useState } from "preact/hooks";
import type { JsonObject } from "../model/fold";
import { hrefOf, useTopics } from "../ui/hooks";
import { Ago, EmptyState, Name } from "../ui/parts";
import { ParticipantActions } from "./acting";

interface Person {
  id: string;
  capabilities: JsonObject[];
  presence: "present" | "away";
  why: string;
  /** When it left. */
  since?: number;
}

const MAX_PEOPLE = 400;

export function Participants() {
  const session = useTopics("space", "history");
  const { you, participants } = session.view;
  const people: Person[] = [];
  if (session.canAct) people.push({ ...you, presence: "present", why: "you" });
  for (const participant of participants.values()) people.push({ ...participant, presence: "present", why: session.paused.has(participant.id) ? "paused" : "" });
  const former = [...session.absent].sort((one, two) => two[1].time - one[1].time);
  for (const [id, { time, why }] of former) {
    if (!participants.has(id)) people.push({ id, capabilities: [], presence: "away", why, since: time });
  }
  const present = people.filter((person) => person.presence === "present").length;
  return (
    <section class="panel people" aria-labelledby="people-title">
      <header class="panel-head">
        <h2 id="people-title">Participants</h2>
        <span class="soft">{present} present</span>
      </header>
      {people.length ? (
        <ul class="people-list">
          {people.slice(0, MAX_PEOPLE).map((person) => (
            <PersonRow key={person.id} person={person} />
          ))}
          {people.length > MAX_PEOPLE && <li class="soft">and {people.length - MAX_PEOPLE} more</li>}
        </ul>
      ) : (
        <EmptyState title="No participants" />
      )}
    </section>
  );
}

function PersonRow({ person }: { person: Person }) {
  const [open, setOpen] = useState(false);
  return (
    <li class={`person ${person.presence}`}>
      <button type="button" class="person-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Name id={person.id} />
        <span class={`presence ${person.presence === "present" && person.why === "paused" ? "paused" : person.presence}`}>
          {person.why || "present"}
          {person.since !== undefined && (
            <>
              , <Ago time={person.since} />
            </>
          )}
        </span>
        <span class="arrow" aria-hidden="true" />
      </button>
      {!open && person.capabilities.length > 0 && <Kinds capabilities={person.capabilities} />}
      {open && (
        <div class="person-body">
          {person.capabilities.length ? (
            <ul class="caps" aria-label={`What ${person.id} may send`}>
              {person.capabilities.map((capability, index) => (
                <li key={index}>
                  <code class="verbatim">{JSON.stringify(capability)}</code>
                </li>
              ))}
            </ul>
          ) : (
            <p class="soft">{person.presence === "present" ? "May send nothing." : "Not present: its capabilities are unknown."}</p>
          )}
          <p>
            <a href={hrefOf("explain", person.id)}>Explain what {person.id} may do</a>
          </p>
          <ParticipantActions id={person.id} capabilities={person.capabilities} />
        </div>
      )}
    </li>
  );
}

const FEW = 4;

function Kinds({ capabilities }: { capabilities: JsonObject[] }) {
  const kinds = [...new Set(capabilities.map((kind) => String(kind["kind"])))].filter((kind) => kind !== "**");
  return (
    <div class="chips">
      {kinds.slice(0, FEW).map((kind) => (
        <code key={kind} class="chip verbatim">
          {kind}
        </code>
      ))}
      {kinds.length > FEW && <span class="chip more-chip">+{kinds.length - FEW}</span>}
    </div>
  );
}
