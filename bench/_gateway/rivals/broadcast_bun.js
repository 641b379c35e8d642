// Bun: every client subscribes to one topic, and what one sends is published to it.
const server = Bun.serve({
  hostname: "127.0.0.1",
  port: Number(process.argv[2]),
  fetch(request, server) {
    return server.upgrade(request) ? undefined : new Response("a WebSocket is wanted", { status: 426 });
  },
  websocket: {
    idleTimeout: 960,
    sendPings: false,
    backpressureLimit: 64 * 1024 * 1024, // as much as nats-server keeps for a slow reader
    open(socket) {
      socket.subscribe("all");
    },
    message(_socket, data) {
      server.publish("all", data);
    },
  },
});
