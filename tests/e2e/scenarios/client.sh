# A participant made of lines: through standard input, through FIFOs, and through a file.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab, default_participant: alice}
journal: {enabled: false}
participants:
  alice: {capabilities: [{kind: "*"}]}
  bot: {capabilities: [{kind: chat}, {kind: stream/request}]}
  watcher: {output_log: logs/watcher.jsonl, auto_connect: true}
YAML
up

# Words and envelopes on standard input; it leaves when everything has been taken.
printf '%s\n' 'good morning' '{"kind":"x/y","payload":{"n":1}}' '{"kind":"chat","payload":{}}' |
    mew client connect >"$scratch/out" 2>"$scratch/err"
is '.kind == "system/welcome" and .payload.you.id == "alice"' "$(head -n 1 "$scratch/out")"
seen logs/watcher.jsonl '.from == "alice" and .payload.text == "good morning"' >/dev/null
seen logs/watcher.jsonl '.kind == "x/y" and .payload.n == 1' >/dev/null
seen "$scratch/out" '.kind == "system/error" and .payload.error == "invalid_envelope"' >/dev/null

# FIFOs that are made for it, read and written by one script after another, with the flags of old scripts.
mew client connect -g "ws://localhost:$port" -s lab -t "$(token bot)" -p bot \
    --fifo-in "$scratch/in" --fifo-out "$scratch/back" 2>"$scratch/client.err" &
client=$!
until_true test -p "$scratch/in" -a -p "$scratch/back"
cat "$scratch/back" >"$scratch/heard" &
seen "$scratch/heard" '.kind == "system/welcome" and .payload.you.id == "bot"' >/dev/null
echo 'from the first' >"$scratch/in"
seen logs/watcher.jsonl '.payload.text == "from the first"' >/dev/null
echo '{"kind":"stream/request","payload":{"direction":"upload"}}' >"$scratch/in"
seen "$scratch/heard" '.kind == "stream/open"' >/dev/null
echo '#stream-1#{"x":1}' >"$scratch/in"
seen logs/watcher.jsonl '.frame.data == "{\"x\":1}"' >/dev/null
chat alice 'hello bot' >/dev/null
seen "$scratch/heard" '.payload.text == "hello bot"' >/dev/null
alive $client || fail "the client is gone: $(cat "$scratch/client.err")"

# A stop signal makes it leave gracefully.
kill $client
wait $client || fail "stopped by SIGTERM it ended with $?: $(cat "$scratch/client.err")"
seen logs/watcher.jsonl '.kind == "system/presence" and .payload.event == "leave" and .payload.participant.id == "bot"' >/dev/null

# What does not work is said in a line.
fails 4 mew client connect -g "ws://localhost:$port" -s lab -t nonsense
fails 3 mew client connect -g ws://localhost:1 -s lab -t nonsense
down
fails 3 mew client connect
