// What is around every view: where one is, where one can go, and whether all this is still true.

import { useEffect, useRef } from "preact/hooks";
import type { Session } from "../session";
import { hrefOf, SessionContext, usePlace, useTheme, useTopics, type Theme } from "../ui/hooks";
import { Icon, Name } from "../ui/parts";
import { Approvals } from "./approvals";
import { Explain } from "./explain";
import { Mark } from "./signin";
import { SpaceView } from "./space";
import { StreamPage } from "./stream";
import { Timeline } from "./timeline";

const VIEWS: [string, string][] = [
  ["space", "Space"],
  ["streams", "Streams"],
  ["timeline", "Timeline"],
  ["approvals", "Approvals"],
  ["explain", "Explain"],
];

export function Shell({ session, onLeave }: { session: Session; onLeave: () => void }) {
  return (
    <SessionContext.Provider value={session}>
      <Frame onLeave={onLeave} />
    </SessionContext.Provider>
  );
}

function Frame({ onLeave }: { onLeave: () => void }) {
  const session = useTopics("phase");
  const place = usePlace();
  const main = useRef<HTMLElement>(null);
  const shown = VIEWS.find(([name]) => name === place.view)?.[1] ?? "Space";
  useEffect(() => {
    document.title = `${place.about ?? shown} · ${session.who.space} · mew inspector`;
    main.current?.scrollTo(0, 0);
  }, [place.view, place.about]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the view
      </a>
      <aside class="side">
        <div class="side-brand">
          <Mark />
          <div class="side-space">
            <span class="side-title">mew inspector</span>
            <bdi class="said">{session.who.space}</bdi>
          </div>
        </div>
        <Nav view={place.view} />
        <Who onLeave={onLeave} />
      </aside>
      <main class="main" id="main" ref={main} tabIndex={-1}>
        <Banner />
        <Body view={place.view} about={place.about} />
      </main>
    </div>
  );
}

function Body({ view, about }: { view: string; about: string | null }) {
  const session = useSessionReady();
  if (!session) return <p class="loading">Joining the space…</p>;
  if (view === "timeline") return <Timeline />;
  if (view === "approvals") return <Approvals />;
  if (view === "explain") return <Explain about={about} />;
  if (view === "streams" && about !== null) return <StreamPage key={about} id={about} />;
  return <SpaceView only={view === "streams" ? "streams" : null} />;
}

/** Before the first welcome there is nothing to show. */
function useSessionReady(): Session | null {
  const session = useTopics("phase", "space");
  return session.view.you.id === "" ? null : session;
}

function Nav({ view }: { view: string }) {
  const session = useTopics("proposals");
  const waiting = session.openProposals().length;
  return (
    <nav class="nav" aria-label="Views">
      {VIEWS.map(([name, label]) => (
        <a key={name} href={hrefOf(name)} aria-current={view === name ? "page" : undefined}>
          <Icon name={name} />
          <span>{label}</span>
          {name === "approvals" && waiting > 0 && (
            <span class="badge" aria-label={`${waiting} waiting`}>
              {waiting}
            </span>
          )}
        </a>
      ))}
    </nav>
  );
}

function Who({ onLeave }: { onLeave: () => void }) {
  const session = useTopics("phase");
  const [theme, setTheme] = useTheme();
  return (
    <div class="who">
      <div class="who-name">
        <Name id={session.who.id} />
        <span class="who-role">{session.acts ? "acts as this participant" : "observer, only looks"}</span>
      </div>
      <div class="who-tools">
        <label class="theme">
          <span class="hidden">Theme</span>
          <select value={theme} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>
            <option value="auto">Theme: system</option>
            <option value="light">Theme: light</option>
            <option value="dark">Theme: dark</option>
          </select>
        </label>
        <button type="button" class="quiet" onClick={onLeave}>
          <Icon name="leave" /> Sign out
        </button>
      </div>
    </div>
  );
}

function Banner() {
  const session = useTopics("phase", "history");
  if (session.phaseNow === "waiting" || (session.phaseNow === "connecting" && session.view.you.id !== "")) {
    return (
      <p class="banner" role="status">
        Not connected: what you see may be old. {session.phaseWhy ? `The gateway said: ${session.phaseWhy}. ` : ""}Trying again…
      </p>
    );
  }
  if (session.past.state === "failed") {
    return (
      <p class="banner" role="status">
        What happened before could not be read from the journal: {session.past.why}
      </p>
    );
  }
  return null;
}
