# Helper functions of the guest's tests. A test fails with the first command that fails.
# shellcheck shell=bash
set -E
trap 'echo "failed at ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND"' ERR

# Ends the test.
fail() {
    echo "failed at ${BASH_SOURCE[1]##*/}:${BASH_LINENO[0]}: $*"
    exit 1
}

# same EXPECTED ACTUAL [WHAT]: both texts are equal.
same() {
    [ "$1" = "$2" ] || fail "${3:-not the same}: expected $(printf %q "$1"), is $(printf %q "$2")"
}

# same_file A B: both files have the same content.
same_file() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

# same_trees A B: names, contents, types, modes, owners, link counts, times and link targets are the same.
same_trees() {
    "$PROBE" manifest "$1" >"$L/manifest.a"
    is_tree "$L/manifest.a" "$2"
}

# copied A B: the trees are the same. NFS-Ganesha does not set times of symbolic links, for the kernel's mount neither.
copied() {
    if [ "$VERSION" = 2 ]; then
        # Version 2 has times of microseconds.
        for tree in "$1" "$2"; do "$PROBE" manifest "$tree" | sed 's/\( mtime=[0-9]*\.[0-9]\{6\}\)[0-9]*/\1/'; done >"$L/both"
        same '' "$(sort "$L/both" | uniq -c | awk '$1 != 2 { print }' | head -20)" "differences"
    elif [ -n "$ENFYS$KNFSD_ROOT" ]; then
        same_trees "$1" "$2"
    else
        for tree in "$1" "$2"; do "$PROBE" manifest "$tree" | sed 's/\( symlink .*\) mtime=[0-9.]*/\1/'; done >"$L/both"
        same '' "$(sort "$L/both" | uniq -c | awk '$1 != 2 { print }' | head -20)" "differences"
    fi
}

# is_tree MANIFEST B: B equals the tree from which the manifest was made.
is_tree() {
    "$PROBE" manifest "$2" >"$L/manifest.b"
    diff "$1" "$L/manifest.b" | head -20 || true
    cmp -s "$1" "$L/manifest.b" || fail "$2 is another tree than ${1##*/} tells"
}

# refused 'TEXT' COMMAND…: the command fails with TEXT (an error of the C library).
refused() {
    local wanted=$1 said
    shift
    if said=$("$@" 2>&1); then fail "$* succeeded; expected: $wanted"; fi
    [[ $said == *"$wanted"* ]] || fail "$*: expected: $wanted; said: $said"
}

# as_user UID GID GROUPS COMMAND…: as another user; GROUPS is a list with commas, or empty.
as_user() {
    local uid=$1 gid=$2 groups=$3
    shift 3
    if [ -n "$groups" ]; then groups=--groups=$groups; else groups=--clear-groups; fi
    setpriv --reuid="$uid" --regid="$gid" "$groups" -- "$@"
}

# Whether locks of versions 2 and 3 are the server's (NLM), as they are on Enfys unless `--set LOCKS=local`; on other servers only for
# `--set LOCKS=server`.
has_nlm() { [ "${LOCKS:-$([ -z "$ENFYS" ] || echo server)}" = server ]; }

# Starts what the kernel's client needs for NLM: a port mapper and a status monitor. They stay.
start_lock_services() {
    if rpcinfo -t 127.0.0.1 100024 1 &>/dev/null; then return; fi
    # The first guest's directory is that of the server's machine; the second has its own, which survives.
    [ "$GUEST" = 2 ] || mount -t tmpfs state /var/lib/nfs
    mkdir -p /var/lib/nfs/{sm,sm.bak} /run/rpcbind
    chown -R statd /var/lib/nfs
    rpcbind -w
    rpc.statd --no-notify
    until_true rpcinfo -t 127.0.0.1 100024 1
}

# mount_options [nolock]: options that mount any export of the server; with `nolock`, locks are local to the client.
mount_options() {
    if [ "$VERSION" = 2 ]; then
        # mount.nfs does not know version 2: the kernel gets all options itself.
        echo "vers=2,proto=tcp,addr=$SERVER,port=$PORT,mountport=$MOUNT_PORT,mountproto=tcp,mountvers=1${1:+,$1}"
    elif [ "$VERSION" = 3 ]; then
        echo "vers=3,tcp,port=$PORT,mountport=$MOUNT_PORT,mountproto=tcp${1:+,$1}"
    else
        echo "vers=$VERSION,tcp,port=$PORT"
    fi
}

# Has mount(8) leave version 2 to the kernel.
mount_flags() { if [ "$VERSION" = 2 ]; then echo -i; fi; }

# mount_export DIRECTORY [EXPORT] [OPTIONS]: by the kernel, or with `--set MOUNT=enfys` by Enfys, whose locks are always the server's.
mount_export() {
    mkdir -p "$1"
    if [ "${MOUNT:-}" = enfys ]; then
        local options=vers=$VERSION,port=$PORT
        if [ "${VERSION%.*}" -lt 4 ]; then options+=,mountport=$MOUNT_PORT; fi
        modprobe -d /run/modules fuse
        [ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229
        "$CLIENT" mount "nfs://$SERVER$(export_root)${2:-/export}" "$1" -o "$options,allow_other${3:+,$3}"
        return
    fi
    local nolock=nolock
    if [ "${VERSION%.*}" -lt 4 ] && has_nlm; then
        start_lock_services
        nolock=
    fi
    mount $(mount_flags) -t nfs -o "$(mount_options $nolock)${3:+,$3}" "$SERVER:$(export_root)${2:-/export}" "$1"
}

# Drops the client's caches, so that the next reads come from the server.
remount() {
    cd /
    umount /run/nfs
    mount_export /run/nfs
    cd "$L"
}

# Mounts the export at /run/other as another client, with its own network and name: it shares no cache, no connection and no client ID
# with the first. Its locks are local in versions 2 and 3: the port mapper and the status monitor are the first client's.
mount_other() {
    unshare --uts bash -c 'hostname other && mkdir -p /run/other && exec nsenter --net=/run/netns/other "$@"' - \
        mount $(mount_flags) -t nfs -o "$(mount_options nolock)" "$SERVER:$(export_root)/export" /run/other
}

# The server's path of the directory with the exports: only version 4 has a pseudo root.
export_root() { if [ "${VERSION%.*}" -lt 4 ]; then echo "$KNFSD_ROOT"; fi; }

# request WORDS…: sends a request to the driver; prints its answer and returns its status.
request() {
    local channel status
    exec {channel}<>"/dev/tcp/$DRIVER/$CHANNEL_PORT"
    echo "$*" >&"$channel"
    read -r status <&"$channel"
    cat <&"$channel"
    exec {channel}>&-
    return "$status"
}

# host 'SCRIPT': runs a script on the server's machine, where $EXPORT, $SPACE and $QUOTA are the exported directories.
host() { request sh "$(printf %s "H='$H'; $1" | od -An -v -tx1 | tr -d ' \n')"; }

# server kill|start|restart
server() { request server "$1"; }

# guest start|kill|wait: boots the second guest, which runs the same script with GUEST=2; kills it; waits for its end, which must be good.
guest() {
    case $1 in
        start) request guest start "$TEST" ;;
        *) request guest "$1" ;;
    esac
}

# of_client ADDRESS sum|group_concat NAME [STATE_DIRECTORY]: a field of `enfys status`, over the clients at that address.
of_client() {
    host "'$ENFYS' status --json --state-dir '${4:-${HOST_EXPORT%/*}/state}'" >"$L/status.json"
    sqlite3 :memory: "SELECT coalesce($2(value ->> '\$.$3'), 0) FROM json_each(readfile('$L/status.json'), '\$.status.clients')
        WHERE value ->> '\$.address' LIKE '$1:%'"
}

# until_true COMMAND…: waits up to a minute until it succeeds; any machine may stall now and then.
until_true() {
    local _
    for _ in $(seq 300); do ! "$@" &>/dev/null || return 0; sleep 0.2; done
    fail "a minute later still not: $*"
}

# reachable [ADDRESS [STATE_DIRECTORY]]: waits until the client there has answered a callback; before that it gets no delegation.
reachable() {
    if [ -n "$ENFYS" ]; then until_true has_answered "${1:-10.99.0.2}" "${2:-}"; else sleep 1; fi
}
has_answered() { [[ ,$(of_client "$1" group_concat callbacks "$2"), == *,up,* ]]; }

# Whether `host` can read the server's files in a directory.
on_host() { [ "$BACKEND" = local ]; }

# Prints the median of nine round trips to the server in seconds: connections, without the time to start a program.
round_trip() {
    python3 - "$SERVER" "$PORT" <<'PY'
import socket, statistics, sys, time

def connect():
    began = time.monotonic()
    socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()
    return time.monotonic() - began

print(f"{statistics.median(connect() for _ in range(9)):.4f}")
PY
}

# operations NAME [MOUNT]: prints how often the client has sent the operation over this mount.
operations() {
    awk -v wanted="$1:" -v mounted="${2:-/run/nfs}" '
        $1 == "device" { ours = $5 == mounted } ours && $1 == wanted { print $2 }' /proc/self/mountstats
}

# Prints how often the kernel has complained about a reply of the server.
kernel_complaints() {
    dmesg | grep -cE 'BUG:|readdir loop|fileid changed|bogus|returned a bad|unhandled error|state manager.* failed|Lost .*lock|WARNING:' || true
}

# expected_failures SUITE: the cases of a foreign suite that fail here, of the lines `CASE VERSIONS BACKENDS WHY` in expected/SUITE.
expected_failures() {
    awk -v version="$VERSION" -v backend="$BACKEND" '
        /^#/ || NF == 0 { next }
        NF < 4 { print FILENAME ": no reason: " $0 >"/dev/stderr"; exit 1 }
        ("," $2 "," ~ "," version ",") && ("," $3 "," ~ "," backend ",") { print $1 }
    ' "$SCRIPTS/expected/$1"
}
