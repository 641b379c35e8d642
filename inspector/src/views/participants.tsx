// Who is here, who was, and what each may do.

import { useState } from "preact/hooks";
import type { JsonObject } from "../model/fold";
import { hrefOf, useTopics } from "../ui/hooks";
import { Ago, Empty, Name } from "../ui/parts";
import { ParticipantActions } from "./acting";

interface Person {
  id: string;
  capabilities: JsonObject[];
  presence: "here" | "away";
  why: string;
  /** Since when it is not here. */
  since?: number;
}

const MOST = 400;

export function Participants() {
  const session = useTopics("space", "history");
  const { you, participants } = session.view;
  const people: Person[] = [];
  if (session.acts) people.push({ ...you, presence: "here", why: "you" });
  for (const each of participants.values()) people.push({ ...each, presence: "here", why: session.paused.has(each.id) ? "paused" : "" });
  const gone = [...session.absent].sort((one, two) => two[1].time - one[1].time);
  for (const [id, { time, why }] of gone) {
    if (!participants.has(id)) people.push({ id, capabilities: [], presence: "away", why, since: time });
  }
  const here = people.filter((each) => each.presence === "here").length;
  return (
    <section class="panel people" aria-labelledby="people-title">
      <header class="panel-head">
        <h2 id="people-title">Participants</h2>
        <span class="soft">{here} here</span>
      </header>
      {people.length ? (
        <ul class="people-list">
          {people.slice(0, MOST).map((each) => (
            <PersonRow key={each.id} person={each} />
          ))}
          {people.length > MOST && <li class="soft">and {people.length - MOST} more</li>}
        </ul>
      ) : (
        <Empty title="Nobody is here" />
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
        <span class={`presence ${person.presence === "here" && person.why === "paused" ? "paused" : person.presence}`}>
          {person.why || "here"}
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
              {person.capabilities.map((each, index) => (
                <li key={index}>
                  <code class="said">{JSON.stringify(each)}</code>
                </li>
              ))}
            </ul>
          ) : (
            <p class="soft">{person.presence === "here" ? "May send nothing." : "Not here: what it may send is not told."}</p>
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
  const kinds = [...new Set(capabilities.map((each) => String(each["kind"])))].filter((each) => each !== "**");
  return (
    <div class="chips">
      {kinds.slice(0, FEW).map((each) => (
        <code key={each} class="chip said">
          {each}
        </code>
      ))}
      {kinds.length > FEW && <span class="chip more-chip">+{kinds.length - FEW}</span>}
    </div>
  );
}
