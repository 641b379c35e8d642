# Tokens are created, rotated and revoked while the gateway runs: immediately, without effect on others.
source "$(dirname "$0")/lib.sh"

space lab <<'YAML'
space: {id: lab}
journal: {enabled: false}
participants:
  alice: {capabilities: [{kind: "*"}]}
  bob: {}
  carol: {}
YAML
up

# A WebSocket as the kernel sees it: shake hands by hand, and keep every byte that comes.
listen() {
    local file=$1 bearer=$2
    exec {socket}<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET /ws?space=lab HTTP/1.1\r\nHost: localhost:%s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n' "$port" "$bearer" >&"$socket"
    cat <&"$socket" >"$file" &
    exec {socket}>&-
    until_true grep -qsaF system/welcome "$file"
}

# A close frame is 0x88, a length, and the code: 4401 is 0x1131.
closed_4401() { od -An -v -tx1 "$1" | tr -d ' \n' | grep -qE '88..1131'; }
open_still() { ! od -An -v -tx1 "$1" | tr -d ' \n' | grep -qE '88..11(31|33|39)'; }

listen "$scratch/bob" "$(token bob)"
listen "$scratch/carol" "$(token carol)"
old=$(token bob)
shown=$(mew token rotate bob)
new=$(token bob)
[[ $new != "$old" ]] || fail "rotated, it is still the same"
has "$shown" "$new"
until_true closed_4401 "$scratch/bob"
open_still "$scratch/carol" || fail "carol was sent away, too"
bearer=$old refused 403 unauthorized bob '{"kind":"chat","payload":{"text":"x"}}'
chat bob 'with the new one' >/dev/null
same "$(stat -c %a .mew/tokens/bob.token)" 600

# An observer only reads; several can connect concurrently; a revoke disconnects all of them.
eye=$(mew token create eye --observer --json | jq -r .token)
listen "$scratch/eye1" "$eye"
listen "$scratch/eye2" "$eye"
chat alice 'look here' >/dev/null
until_true grep -qsaF 'look here' "$scratch/eye1"
until_true grep -qsaF 'look here' "$scratch/eye2"
listed=$(mew token list)
has "$listed" eye
[[ $listed != *"$eye"* && $listed != *"$new"* ]] || fail "the list shows a token"
mew token revoke eye --observer >/dev/null
until_true closed_4401 "$scratch/eye1"
until_true closed_4401 "$scratch/eye2"

mew token revoke carol >/dev/null
until_true closed_4401 "$scratch/carol"
[[ ! -e .mew/tokens/carol.token ]] || fail "revoked, and still kept"
mew token create carol >/dev/null
chat carol 'in again' >/dev/null

fails 1 mew token create bob
fails 1 mew token create unknown
has "$said" unknown
fails 1 mew token revoke stranger
