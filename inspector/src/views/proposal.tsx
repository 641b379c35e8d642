// One open proposal with its complete content. The page shows the content that the gateway stores, because the gateway
// compares a decision with that content.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { parseExact } from "../model/exact";
import type { JsonObject, OpenProposal } from "../model/fold";
import { toolIn } from "../model/proposals";
import { ApiError } from "../net/http";
import { useInView, useInterval, useSession, useTopics } from "../ui/hooks";
import { Name, errorText } from "../ui/parts";
import { MAX_SHOWN, Tree } from "../ui/tree";
import * as formatting from "../ui/formatting";
import { Decide } from "./deciding";

const RETRY = 2000;

interface Content {
  payload: JsonObject;
  size: number;
}

/** The content of a proposal, requested when it is needed; a string is the error of the request. */
function useContent(entry: OpenProposal, needed: boolean): Content | string | null {
  const session = useSession();
  const [content, setContent] = useState<Content | string | null>(null);
  const loaded = content !== null && typeof content !== "string";
  useEffect(() => {
    if (!needed || loaded) return undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let cancelled = false;
    const read = async (): Promise<void> => {
      try {
        const text = await session.api.proposal(session.who.space, entry.position);
        const stored = parseExact(text) as { digest: string; payload: JsonObject };
        if (cancelled) return;
        if (stored.digest === entry.digest) setContent({ payload: stored.payload, size: text.length });
        else setContent("The gateway has another proposal at this position.");
      } catch (problem) {
        if (cancelled) return;
        setContent(errorText(problem));
        if (!(problem instanceof ApiError) || problem.status >= 500 || problem.status === 429) timer = setTimeout(() => void read(), RETRY);
      }
    };
    void read();
    return () => {
      cancelled = true;
      clearTimeout(timer);
    };
  }, [session, entry.position, entry.digest, needed, loaded]);
  return content;
}

export function ProposalCard({ entry }: { entry: OpenProposal }) {
  const session = useTopics("space");
  const box = useRef<HTMLElement>(null);
  const visible = useInView(box);
  const wasVisible = useRef(false);
  wasVisible.current ||= visible;
  const content = useContent(entry, wasVisible.current);
  const loaded = content !== null && typeof content !== "string" ? content : null;
  const isPresent = entry.from === session.view.you.id || session.view.participants.has(entry.from);
  return (
    <article ref={box} class="panel card" aria-label={`Proposal of ${formatting.oneLine(entry.from)}`}>
      <header class="panel-head">
        <h2 class="verbatim">{formatting.oneLine((loaded && toolIn(loaded.payload)) ?? entry.method)}</h2>
        <span class="soft">
          <bdi class="verbatim">{formatting.oneLine(entry.method)}</bdi>, proposed by <Name id={entry.from} />
          {!isPresent && " (not present)"}
          {entry.to.length > 0 && (
            <>
              {" "}
              to <bdi class="verbatim">{formatting.oneLine(entry.to.join(", "))}</bdi>
            </>
          )}
          , <TimeLeft until={Date.parse(entry.expires_at)} />
        </span>
      </header>
      {loaded ? <ProposalContent content={loaded} /> : <p class="soft">{typeof content === "string" ? `The content of the proposal cannot be read: ${content}` : "…"}</p>}
      {session.canAct && loaded && <Decide box={box} entry={entry} payload={loaded.payload} visible={visible} />}
    </article>
  );
}

/** The time until the proposal expires. */
function TimeLeft({ until }: { until: number }) {
  const session = useSession();
  useInterval(1000);
  const left = until - session.now();
  return <>{left > 0 ? `expires in ${formatting.ago(left)}` : "expired"}</>;
}

/** The content as a tree, or all of it as text, so that everything that is approved can be read. */
function ProposalContent({ content: { payload, size } }: { content: Content }) {
  const [asText, setAsText] = useState(false);
  const tree = useMemo(() => <Tree value={payload} open={4} />, [payload]);
  const text = useMemo(() => (asText ? formatting.visible(JSON.stringify(payload, null, 2)) : ""), [payload, asText]);
  return (
    <>
      {size > MAX_SHOWN && <p class="notice">This is large: {formatting.count(size)} characters. Some parts are collapsed.</p>}
      <div class="code">{asText ? <pre class="verbatim">{text}</pre> : tree}</div>
      <button type="button" class="quiet" aria-pressed={asText} onClick={() => setAsText(!asText)}>
        {asText ? "Show as a tree" : "Show all of it as text"}
      </button>
    </>
  );
}
