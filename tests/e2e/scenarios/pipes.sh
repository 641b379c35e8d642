# A reader who has had enough ends any command quietly with 0, and what goes wrong is one line on standard error.
source "$(dirname "$0")/lib.sh"

quiet() {
    local words=$1 codes
    shift
    "$@" 2>"$scratch/err" | grep -q "$words"
    codes=("${PIPESTATUS[@]}")
    same "${codes[*]}" '0 0'
    same "$(cat "$scratch/err")" ''
}

quiet "mew gateway start" mew --help
quiet default mew init --list-templates
fails 2 mew space up --detach
has "$said" 'mew init'
fails 2 mew send hello
fails 2 mew nonsense
fails 2 mew space up --port many

space lab <<'YAML'
space: {id: lab, default_participant: alice}
participants:
  alice: {capabilities: [{kind: "*"}]}
  bob: {}
YAML
fails 3 mew send hello
up
for number in 1 2 3 4 5; do
    chat alice "number $number" >/dev/null
done
quiet 'number 5' mew tail
quiet 'number 1' mew tail --json -n 50
quiet lab mew space status
quiet alice mew token list
fails 4 mew send --as bob --kind mcp/request --payload '{"method":"tools/list"}'
has "$said" capability
fails 2 mew send --payload '{broken' --kind chat
fails 2 mew send --as stranger hello
