// The page: signing in, then the views of one stay.

import { render } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import "./style.css";
import type { Session } from "./session";
import { Shell } from "./views/shell";
import { SignIn } from "./views/signin";

function App() {
  const [session, setSession] = useState<Session | null>(null);
  const [why, setWhy] = useState("");
  const leave = (reason: string): void => {
    session?.leave();
    setSession(null);
    setWhy(reason);
  };
  useLayoutEffect(() => {
    if (!session) return undefined;
    return session.listen("phase", () => {
      if (session.phaseNow === "over") leave(session.phaseWhy);
    });
  }, [session]);
  return session ? <Shell session={session} onLeave={() => leave("")} /> : <SignIn onSession={setSession} why={why} />;
}

render(<App />, document.getElementById("app")!);
