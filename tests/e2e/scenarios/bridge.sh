# A third-party MCP server, the filesystem server from npm, as a participant; its program is the first argument.
program=$1
source "$(dirname "$0")/lib.sh"

space lab <<YAML
space: {id: lab}
journal: {enabled: false}
participants:
  human: {capabilities: [{kind: "*"}], output_log: logs/human.jsonl, auto_connect: true}
  files:
    type: mcp-bridge
    auto_start: true
    mcp_server: {command: node, args: ["$program", "."], cwd: files}
    capabilities: [{kind: mcp/notification}, {kind: participant/status}]
YAML
mkdir files
up
log=logs/human.jsonl
seen $log '.kind == "system/presence" and .payload.participant.id == "files" and .payload.event == "join"' >/dev/null

request() {
    local id
    id=$(post human "{\"kind\":\"mcp/request\",\"to\":[\"files\"],\"payload\":{\"method\":\"$1\",\"params\":$2}}" | jq -r .id)
    seen $log ".kind == \"mcp/response\" and .correlation_id == [\"$id\"]"
}
call() { request tools/call "{\"name\":\"$1\",\"arguments\":$2}"; }

listed=$(request tools/list '{}')
is '[.payload.result.tools[].name] | contains(["read_text_file", "write_file", "list_directory"])' "$listed"
is '.payload.result.isError != true' "$(call write_file '{"path":"a.txt","content":"words\n"}')"
same "$(cat files/a.txt)" words
is '.payload.result.content[0].text == "words\n"' "$(call read_text_file '{"path":"a.txt"}')"
has "$(call list_directory '{"path":"."}')" 'a.txt'
is '.payload.result.isError' "$(call read_text_file '{"path":"../space.yaml"}')"
is '.payload.error.code == -32601' "$(request resources/list '{}')"

# With the server's end the bridge and everything of it goes.
pid=$(jq .agents.files .mew/pids.json)
down
dead "$pid" || fail "the bridge still runs"
