// The frame around every view: navigation, identity, and the state of the connection.

import { useEffect, useRef } from "preact/hooks";
import type { Session } from "../session";
import { hrefOf, SessionContext, useRoute, useTheme, useTopics, type Theme } from "../ui/hooks";
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
  const route = useRoute();
  const main = useRef<HTMLElement>(null);
  const shown = VIEWS.find(([name]) => name === route.view)?.[1] ?? "Space";
  useEffect(() => {
    document.title = `${route.subject ?? shown} · ${session.who.space} · mew inspector`;
    main.current?.scrollTo(0, 0);
  }, [route.view, route.subject]);
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
            <bdi class="verbatim">{session.who.space}</bdi>
          </div>
        </div>
        <Nav view={route.view} />
        <Who onLeave={onLeave} />
      </aside>
      <main class="main" id="main" ref={main} tabIndex={-1}>
        <Banner />
        <Body view={route.view} subject={route.subject} />
      </main>
    </div>
  );
}

function Body({ view, subject }: { view: string; subject: string | null }) {
  const session = useSessionReady();
  if (!session) return <p class="loading">Joining the space…</p>;
  if (view === "timeline") return <Timeline />;
  if (view === "approvals") return <Approvals />;
  if (view === "explain") return <Explain subject={subject} />;
  if (view === "streams" && subject !== null) return <StreamPage key={subject} id={subject} />;
  return <SpaceView only={view === "streams" ? "streams" : null} />;
}

/** Null until the first welcome. */
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
        <span class="who-role">{session.canAct ? "acts as this participant" : "observer, read only"}</span>
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
        Not connected: this page may be out of date. {session.phaseWhy ? `Reason: ${session.phaseWhy}. ` : ""}Reconnecting…
      </p>
    );
  }
  if (session.past.state === "failed") {
    return (
      <p class="banner" role="status">
        Earlier events could not be read from the journal: {session.past.why}
      </p>
    );
  }
  return null;
}
