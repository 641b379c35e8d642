# The three small agents, as the template has them: an echo, a calculator, and one that does what others propose.
source "$(dirname "$0")/lib.sh"

mkdir "$scratch/lab"
enter "$scratch/lab"
mew init agents --name lab --port 0 </dev/null >/dev/null
sed -i 's/^  human:$/&\n    output_log: logs\/human.jsonl\n    auto_connect: true/' .mew/space.yaml
sed -i 's/^space:$/journal: {enabled: false}\n&/' .mew/space.yaml
up
is '.agents | keys == ["calculator", "echo", "fulfiller"]' "$(cat .mew/pids.json)"
log=logs/human.jsonl
for agent in echo calculator fulfiller; do
    seen $log ".kind == \"system/presence\" and .payload.participant.id == \"$agent\" and .payload.event == \"join\"" >/dev/null
done

# Things that no agent may stumble over.
post human '{"kind":"never/heard-of","payload":{"a":[1,{}]}}' >/dev/null
post human '{"kind":"stream/request","payload":{"direction":"upload"}}' >/dev/null

asked_id=$(chat human 'hello there')
is ".from == \"echo\" and .correlation_id == [\"$asked_id\"]" "$(seen $log '.payload.text? == "Echo: hello there"')"

# calculate NAME ARGUMENTS: the answer of the calculator.
calculate() {
    local id
    id=$(post human "{\"kind\":\"mcp/request\",\"to\":[\"calculator\"],\"payload\":{\"method\":\"tools/call\",\"params\":{\"name\":\"$1\",\"arguments\":$2}}}" | jq -r .id)
    seen $log ".kind == \"mcp/response\" and .correlation_id == [\"$id\"]"
}
id=$(post human '{"kind":"mcp/request","to":["calculator"],"payload":{"method":"tools/list"}}' | jq -r .id)
is '[.payload.result.tools[].name] | sort == ["add","evaluate","multiply"]' "$(seen $log ".kind == \"mcp/response\" and .correlation_id == [\"$id\"]")"
is '.payload.result.content == [{"type":"text","text":"8"}]' "$(calculate add '{"a":5,"b":3}')"
is '.payload.result.content[0].text == "42"' "$(calculate multiply '{"a":6,"b":7}')"
is '.payload.result.content[0].text == "14.5"' "$(calculate evaluate '{"expression":"2 + 25/2"}')"
is '.payload.result.isError and (.payload.result.content[0].text | test("zero"))' "$(calculate evaluate '{"expression":"1/0"}')"
is '.payload.result.isError' "$(calculate evaluate '{"expression":"__import__(\"os\").getcwd()"}')"
is '.payload.result.isError' "$(calculate evaluate '{"expression":"9**9**9"}')"
is '.payload.error.message | length > 0' "$(calculate divide '{"a":1,"b":2}')"

# What the guest only proposes, the fulfiller does; what fails, it tells.
propose() {
    post guest "{\"id\":\"$1\",\"kind\":\"mcp/proposal\",\"payload\":{\"method\":\"tools/call\",\"params\":{\"name\":\"$2\",\"arguments\":{\"a\":20,\"b\":22}}}}" >/dev/null
}
propose p-1 add
is '.from == "fulfiller" and .to == ["calculator"]' "$(seen $log '.kind == "mcp/request" and .correlation_id == ["p-1"]')"
has "$(seen $log '.kind == "chat" and .from == "fulfiller"' | jq -r .payload.text)" 42
propose p-2 no_such_tool
seen $log '.kind == "chat" and .from == "fulfiller" and (.payload.text | startswith("Error fulfilling proposal: "))' >/dev/null
same "$(mew mcp list calculator --json | jq -c '[.. | .name? // empty] | unique')" '["add","evaluate","multiply"]'

for agent in echo calculator fulfiller; do
    alive "$(jq ".agents.$agent" .mew/pids.json)" || fail "$agent did not live to the end"
done
down
