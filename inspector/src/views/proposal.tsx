// One open proposal: who asks whom for what, all of it. What it asks for is what the gateway keeps, not what was seen
// go by, so that what is shown is what the gateway compares.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { parseExact } from "../model/exact";
import type { JsonObject, OpenProposal } from "../model/fold";
import { toolIn } from "../model/proposals";
import { Refused } from "../net/http";
import { useInView, usePulse, useSession, useTopics } from "../ui/hooks";
import { Name, told } from "../ui/parts";
import { MOST_SHOWN, Tree } from "../ui/tree";
import * as words from "../ui/words";
import { Decide } from "./deciding";

const RETRY = 2000;

interface Content {
  payload: JsonObject;
  size: number;
}

/** What a proposal asks for, once somebody looks at it; a string says why it cannot be read. */
function useContent(entry: OpenProposal, wanted: boolean): Content | string | null {
  const session = useSession();
  const [content, setContent] = useState<Content | string | null>(null);
  const has = content !== null && typeof content !== "string";
  useEffect(() => {
    if (!wanted || has) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let over = false;
    const read = async (): Promise<void> => {
      try {
        const text = await session.door.proposal(session.who.space, entry.position);
        const found = parseExact(text) as { digest: string; payload: JsonObject };
        if (over) return;
        if (found.digest === entry.digest) setContent({ payload: found.payload, size: text.length });
        else setContent("The gateway has another proposal at this position.");
      } catch (problem) {
        if (over) return;
        setContent(told(problem));
        if (!(problem instanceof Refused) || problem.status >= 500 || problem.status === 429) timer = setTimeout(() => void read(), RETRY);
      }
    };
    void read();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [session, entry.position, entry.digest, wanted, has]);
  return content;
}

export function ProposalCard({ entry }: { entry: OpenProposal }) {
  const session = useTopics("space");
  const box = useRef<HTMLElement>(null);
  const seen = useInView(box);
  const met = useRef(false);
  met.current ||= seen;
  const content = useContent(entry, met.current);
  const known = content !== null && typeof content !== "string" ? content : null;
  const isHere = entry.from === session.view.you.id || session.view.participants.has(entry.from);
  return (
    <article ref={box} class="panel card" aria-label={`Proposal of ${words.shown(entry.from)}`}>
      <header class="panel-head">
        <h2 class="said">{words.shown((known && toolIn(known.payload)) ?? entry.method)}</h2>
        <span class="soft">
          <bdi class="said">{words.shown(entry.method)}</bdi>, proposed by <Name id={entry.from} />
          {!isHere && " (not here)"}
          {entry.to.length > 0 && (
            <>
              {" "}
              to <bdi class="said">{words.shown(entry.to.join(", "))}</bdi>
            </>
          )}
          , <Left until={Date.parse(entry.expires_at)} />
        </span>
      </header>
      {known ? <Asked content={known} /> : <p class="soft">{typeof content === "string" ? `What is proposed cannot be read: ${content}` : "…"}</p>}
      {session.acts && known && <Decide box={box} entry={entry} payload={known.payload} seen={seen} />}
    </article>
  );
}

/** How long it waits yet. */
function Left({ until }: { until: number }) {
  const session = useSession();
  usePulse(1000);
  const left = until - session.now();
  return <>{left > 0 ? `waits for another ${words.ago(left)}` : "has ended"}</>;
}

/** As a tree, and all of it as text: nothing that is approved is out of reach. */
function Asked({ content: { payload, size } }: { content: Content }) {
  const [whole, setWhole] = useState(false);
  const tree = useMemo(() => <Tree value={payload} open={4} />, [payload]);
  const text = useMemo(() => (whole ? words.visible(JSON.stringify(payload, null, 2)) : ""), [payload, whole]);
  return (
    <>
      {size > MOST_SHOWN && <p class="notice">This is large, {words.count(size)} characters: not all of it is opened here.</p>}
      <div class="code">{whole ? <pre class="said">{text}</pre> : tree}</div>
      <button type="button" class="quiet" aria-pressed={whole} onClick={() => setWhole(!whole)}>
        {whole ? "Show it as a tree" : "Show all of it as text"}
      </button>
    </>
  );
}
