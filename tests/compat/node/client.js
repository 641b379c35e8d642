// A typical client of `ws`: it joins, sends each line of its input, and prints what comes as JSON.
// A line is an envelope; "#id#data" is a frame, sent as text, and "binary #id#data" the same, sent as bytes.
import { createInterface } from "node:readline";
import WebSocket from "ws";

const [url, space, participantId] = process.argv.slice(2);
const socket = new WebSocket(url);
const tell = (thing) => console.log(JSON.stringify(thing));

socket.on("open", () => {
  socket.send(JSON.stringify({ type: "join", space, participantId, token: process.env.MEW_TOKEN }));
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const binary = line.startsWith("binary ");
    socket.send(binary ? Buffer.from(line.slice("binary ".length)) : line);
  });
  lines.on("close", () => socket.close());
});
socket.on("message", (data, binary) => {
  tell(data[0] === "#".charCodeAt(0) ? { frame: data.toString(), binary } : JSON.parse(data));
});
socket.on("close", (code) => tell({ closed: code }));
socket.on("error", (error) => tell({ error: error.message }));
