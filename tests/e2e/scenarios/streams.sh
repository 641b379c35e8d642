# Streams as all participants see them: opened, sent to late joiners, written by granted writers, transferred, closed.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab}
participants:
  alice: {capabilities: [{kind: chat}, {kind: stream/request}], output_log: logs/alice.jsonl, auto_connect: true}
  bob: {capabilities: [{kind: chat}], output_log: logs/bob.jsonl, auto_connect: true}
  carol: {output_log: logs/carol.jsonl, auto_connect: true}
  newcomer: {output_log: logs/newcomer.jsonl}
  writer: {capabilities: [{kind: stream/request}]}
YAML
up
refused 403 capability_violation bob '{"kind":"stream/request","payload":{"direction":"upload"}}'
opened=$(post alice '{"id":"req-1","kind":"stream/request","payload":{"direction":"upload","description":"positions","metadata":{"hz":60},"owner":"mallory"}}')
is '.status == "stream_opened" and .stream_id == "stream-1"' "$opened"
open=$(seen logs/bob.jsonl '.kind == "stream/open"')
is '.correlation_id[0] == "req-1" and .from == "system:gateway" and .to == ["alice"]' "$open"
is '.payload.stream_id == "stream-1" and .payload.owner == "alice" and .payload.authorized_writers == ["alice"]' "$open"
same "$(jq -r 'select(.kind == "stream/request" or .kind == "stream/open") | .kind' logs/bob.jsonl | xargs)" 'stream/request stream/open'

# Who comes later finds it in the welcome, with everything that was asked.
chat newcomer hello >/dev/null
entry=$(seen logs/newcomer.jsonl '.kind == "system/welcome"' | jq -c '.payload.active_streams[0]')
is '.stream_id == "stream-1" and .owner == "alice" and .direction == "upload" and .created != null and .metadata.hz == 60' "$entry"
is '.stream.status == "live" and .stream.owner_connected' "$entry"

# Data, from each writer.
data() {
    printf '{"kind":"stream/data","payload":{"stream":{"stream_id":"%s"},"sequence":%s,"content":{"x":%s}}}' "$1" "$2" "$2"
}
post alice "$(data stream-1 1)" >/dev/null
is '.from == "alice" and .payload.content.x == 1 and .payload.stream.namespace == "lab/stream-1"' "$(seen logs/carol.jsonl '.kind == "stream/data"')"
refused 403 unauthorized_stream_write bob "$(data stream-1 1)"
refused 409 sequence_out_of_order alice "$(data stream-1 1)"

# Ownership: grant, revoke, transfer.
change() { printf '{"kind":"stream/%s","payload":{"stream_id":"stream-1",%s,"reason":"because"}}' "$1" "$2"; }
refused 403 unauthorized bob "$(change grant-write '"participant_id":"bob"')"
refused 404 participant_not_found alice "$(change grant-write '"participant_id":"unknown"')"
is '.status == "granted" and .authorized_writers == ["alice","bob"]' "$(post alice "$(change grant-write '"participant_id":"bob"')")"
is '.payload.authorized_writers == ["alice","bob"] and .payload.reason == "because"' "$(seen logs/carol.jsonl '.kind == "stream/write-granted"')"
unseen logs/carol.jsonl '.kind == "stream/grant-write"'
post bob "$(data stream-1 1)" >/dev/null
is '.status == "revoked" and .authorized_writers == ["alice"]' "$(post alice "$(change revoke-write '"participant_id":"bob"')")"
seen logs/carol.jsonl '.kind == "stream/write-revoked"' >/dev/null
refused 403 unauthorized_stream_write bob "$(data stream-1 2)"
refused 400 invalid_operation alice "$(change revoke-write '"participant_id":"alice"')"
moved=$(post alice "$(change transfer-ownership '"new_owner":"bob"')")
is '.status == "transferred" and .previous_owner == "alice" and .new_owner == "bob" and .authorized_writers == ["bob"]' "$moved"
seen logs/carol.jsonl '.kind == "stream/ownership-transferred" and .payload.new_owner == "bob"' >/dev/null
refused 403 unauthorized_stream_write alice "$(data stream-1 2)"
refused 403 unauthorized alice '{"kind":"stream/close","payload":{"stream_id":"stream-1"}}'
post bob "$(data stream-1 2)" >/dev/null

# The registry outlives the gateway, numbers included.
down
up
is '.payload.active_streams[0] | .owner == "bob" and .stream_id == "stream-1"' "$(grep -F system/welcome logs/carol.jsonl | tail -n 1)"
refused 409 sequence_out_of_order bob "$(data stream-1 2)"
post bob '{"kind":"stream/close","payload":{"stream_id":"stream-1","reason":"done"}}' >/dev/null
seen logs/alice.jsonl '.kind == "stream/close" and .from == "bob"' >/dev/null
refused 404 stream_not_found bob "$(data stream-1 3)"

# A stream for some: frames of a real socket reach its targets alone, its life is seen by all.
refused 400 target_not_found alice '{"kind":"stream/request","payload":{"direction":"upload","target":["carol","unknown"]}}'
is '.targets == ["unknown"]' "$(cat "$scratch/answer")"
mkfifo "$scratch/in"
mew client connect -p writer --fifo-in "$scratch/in" --output-file "$scratch/out.jsonl" 2>"$scratch/client.err" &
exec 5>"$scratch/in"
echo '{"kind":"stream/request","payload":{"direction":"upload","target":["carol","alice"]}}' >&5
id=$(seen "$scratch/out.jsonl" '.kind == "stream/open"' | jq -r .payload.stream_id)
same "$id" stream-2
echo "#$id#for two, ünd no more" >&5
is '.frame.encoding == "text" and (has("kind") | not)' "$(seen logs/carol.jsonl '.frame.data == "for two, ünd no more"')"
seen logs/alice.jsonl ".frame.stream_id == \"$id\"" >/dev/null
echo '{"id":"fence","kind":"stream/close","payload":{"stream_id":"stream-2"}}' >&5
seen logs/bob.jsonl '.id == "fence"' >/dev/null
seen "$scratch/out.jsonl" '.id == "fence"' >/dev/null
unseen logs/bob.jsonl '.frame'
unseen "$scratch/out.jsonl" '.frame'
exec 5>&-
