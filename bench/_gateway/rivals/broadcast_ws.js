// Node's `ws`: whatever one client sends goes to every client, one send each.
import { WebSocketServer } from "ws";

const server = new WebSocketServer({ host: "127.0.0.1", port: Number(process.argv[2]) });

server.on("connection", (socket) => {
  socket.on("message", (data, binary) => {
    for (const client of server.clients) client.send(data, { binary });
  });
});
