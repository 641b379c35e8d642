# Chats are acknowledged and taken back; participants are paused, resumed, asked, told to forget, and sent home.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab}
journal: {enabled: false}
participants:
  human: {capabilities: [{kind: "*"}], output_log: logs/human.jsonl, auto_connect: true}
  agent:
    capabilities: [{kind: "chat"}, {kind: chat/acknowledge}, {kind: participant/status}, {kind: participant/compact-done}, {kind: participant/resume}]
    output_log: logs/agent.jsonl
    auto_connect: true
YAML
up
question=$(chat human 'are you there?')
post agent "{\"kind\":\"chat/acknowledge\",\"to\":[\"human\"],\"correlation_id\":[\"$question\"],\"payload\":{\"status\":\"seen\"}}" >/dev/null
seen logs/human.jsonl ".kind == \"chat/acknowledge\" and .correlation_id == [\"$question\"] and .from == \"agent\"" >/dev/null
post human "{\"kind\":\"chat/cancel\",\"correlation_id\":[\"$question\"],\"payload\":{\"reason\":\"answered\"}}" >/dev/null
seen logs/agent.jsonl ".kind == \"chat/cancel\" and .correlation_id == [\"$question\"]" >/dev/null
refused 403 capability_violation agent "{\"kind\":\"chat/cancel\",\"correlation_id\":[\"$question\"],\"payload\":{}}"

# control KIND PAYLOAD: the human says so to the agent, and the agent sees it.
control() {
    local id
    id=$(post human "{\"kind\":\"participant/$1\",\"to\":[\"agent\"],\"payload\":$2}" | jq -r .id)
    is ".kind == \"participant/$1\" and .payload == $2" "$(seen logs/agent.jsonl ".id == \"$id\"")"
}

# Paused it may say how it is, and nothing else; it cannot lift that itself.
control pause '{"reason":"wait","timeout_seconds":60}'
refused 403 paused agent '{"kind":"chat","payload":{"text":"but"}}'
post agent '{"kind":"participant/status","payload":{"status":"paused"}}' >/dev/null
post agent '{"kind":"participant/resume","to":["agent"],"payload":{}}' >/dev/null
refused 403 paused agent '{"kind":"chat","payload":{"text":"but"}}'
control resume '{}'
chat agent 'thank you' >/dev/null

# A pause ends by itself.
paused=$(post human '{"kind":"participant/pause","to":["agent"],"payload":{"timeout_seconds":1}}' | jq -r .timestamp)
spoken() { [[ $(asked agent '{"kind":"chat","payload":{"text":"at last"}}') == 200 ]]; }
until_true spoken
lasted=$(($(date -d "$(jq -r .timestamp "$scratch/answer")" +%s%3N) - $(date -d "$paused" +%s%3N)))
((lasted >= 1000)) || fail "a pause of a second lasted $lasted ms"

# What is only relayed: the participant itself decides what comes of it.
control request-status '{"fields":["tokens"]}'
post agent '{"kind":"participant/status","to":["human"],"payload":{"tokens":12,"max_tokens":100,"status":"idle"}}' >/dev/null
is '.payload.tokens == 12' "$(seen logs/human.jsonl '.kind == "participant/status" and .payload.status == "idle"')"
control forget '{"direction":"oldest","entries":3}'
control compact '{"target_tokens":50}'
post agent '{"kind":"participant/compact-done","payload":{"freed_tokens":9}}' >/dev/null
seen logs/human.jsonl '.kind == "participant/compact-done" and .payload.freed_tokens == 9' >/dev/null
control clear '{"reason":"again"}'
control restart '{"mode":"full"}'
refused 403 capability_violation agent '{"kind":"participant/pause","to":["human"],"payload":{}}'

# Without an addressee no participant is paused.
post human '{"kind":"participant/pause","payload":{}}' >/dev/null
chat agent 'still here' >/dev/null

# After a shutdown, a socket is closed after its last messages.
mew client connect -p agent --output-file "$scratch/agent.out" </dev/null 2>"$scratch/agent.err" &
client=$!
seen "$scratch/agent.out" '.kind == "system/welcome"' >/dev/null
post human '{"kind":"participant/shutdown","to":["agent"],"payload":{"reason":"done"}}' >/dev/null
refused 403 paused agent '{"kind":"chat","payload":{"text":"one more thing"}}'
post agent '{"kind":"participant/status","payload":{"status":"leaving"}}' >/dev/null
seen logs/human.jsonl '.payload.status == "leaving"' >/dev/null
seen "$scratch/agent.out" '.kind == "participant/shutdown"' >/dev/null
kill $client 2>/dev/null || true    # it may have been closed by now
