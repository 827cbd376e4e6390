# The server's side of guest/krb5.sh: a realm with its KDC, and a server with Kerberos exports. Sourced by `host`, with the directory
# of both as its argument.
# shellcheck shell=bash
K=$1
REALM=ENFYS.TEST
ADDRESS=10.99.0.5
export KRB5_CONFIG=$K/krb5.conf KRB5_KDC_PROFILE=$K/kdc.conf KRB5RCACHEDIR=$K

# Makes the realm, its principals and their keys, and starts the KDC.
realm() {
    rm -rf "$K"
    mkdir -p "$K/export" "$K/plain"
    chmod 755 "$K"
    chmod 1777 "$K/export" "$K/plain"
    ip addr add "$ADDRESS/24" dev "$(ip -o -4 addr show to 10.99.0.1 | awk '{ print $2; exit }')"
    cat >"$K/krb5.conf" <<END
[libdefaults]
default_realm = $REALM
dns_lookup_realm = false
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
$REALM = {
  kdc = $ADDRESS
}
[domain_realm]
.enfys.test = $REALM
END
    cat >"$K/kdc.conf" <<END
[kdcdefaults]
kdc_listen = $ADDRESS:88
kdc_tcp_listen = $ADDRESS:88
[realms]
$REALM = {
  database_name = $K/principal
  key_stash_file = $K/stash
}
[logging]
kdc = FILE:$K/kdc.log
END
    kdb5_util create -s -r "$REALM" -P master >/dev/null
    local name
    for name in nfs/server.enfys.test host/client.enfys.test; do kadmin_do "addprinc -randkey $name"; done
    for name in alice bob stranger; do kadmin_do "addprinc -pw secret $name"; done
    kadmin_do "ktadd -k $K/server.keytab nfs/server.enfys.test"
    kadmin_do "ktadd -k $K/client.keytab host/client.enfys.test"
    chmod 644 "$K/client.keytab"
    krb5kdc -r "$REALM" -P "$K/kdc.pid" >"$K/kdc.out" 2>&1 </dev/null
    # Users that only the server knows. The client does not know alice's second group.
    { cat /etc/passwd; echo 'alice:x:1234:1234::/:/bin/sh'; echo 'bob:x:1235:1235::/:/bin/sh'; } >"$K/passwd"
    { cat /etc/group; echo 'alice:x:1234:'; echo 'bob:x:1235:'; echo 'crew:x:4321:alice'; } >"$K/group"
    cat >"$K/enfys.toml" <<END
listen = ["$ADDRESS:2049"]
state-dir = "$K/state"
keytab = "$K/server.keytab"
limits = { lease-seconds = 10 }
[[export]]
path = "$K/export"
pseudo = "/krb5"
sec = ["krb5p", "krb5i", "krb5"]
[[export]]
path = "$K/plain"
pseudo = "/plain"
END
}

# Runs a command as an administrator of the realm.
kadmin_do() { kadmin.local -r "$REALM" -q "$*" >>"$K/kadmin.log" 2>&1; }

# Starts the server. A mount namespace shows it the users above.
serve() {
    # shellcheck disable=SC2016
    setsid unshare --mount bash -c '
        for name in passwd group; do mount --bind "$K/$name" "/etc/$name"; done
        exec "$(dirname "$PROBE")/enfys" serve --config "$K/enfys.toml"
    ' >>"$K/server.log" 2>&1 </dev/null &
    echo $! >"$K/server.pid"
    local attempt
    for attempt in $(seq 600); do
        ss -Hltn "src $ADDRESS:2049" | grep -q . && return
        sleep 0.1
    done
    tail "$K/server.log" >&2
    return 1
}
export K

# Waits for the end of a process that is no child of this shell: the driver is process 1 here and waits only for its own children.
until_ended() {
    # A process with many threads is a zombie once its first thread has ended. Shared resources, such as the lock of a state
    # directory, are held until the last thread has ended.
    while [ -e "/proc/$1" ]; do
        if grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null && [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -le 1 ]; then
            return
        fi
        sleep 0.05
    done
}

# Kills the server.
crash() {
    kill -KILL "$(cat "$K/server.pid")"
    until_ended "$(cat "$K/server.pid")"
}

# Starts to capture packets.
listen() {
    setsid dumpcap -q -i any -f "host $ADDRESS and tcp port 2049" -w "$K/wire.pcapng" >"$K/dumpcap.log" 2>&1 </dev/null &
    echo $! >"$K/dumpcap.pid"
    local attempt
    for attempt in $(seq 600); do
        [ -s "$K/wire.pcapng" ] && return
        sleep 0.1
    done
    cat "$K/dumpcap.log" >&2
    return 1
}

# Prints how many replies to EXCHANGE_ID have state protection by the machine's principal.
protected() {
    kill -INT "$(cat "$K/dumpcap.pid")"
    until_ended "$(cat "$K/dumpcap.pid")"
    tshark -r "$K/wire.pcapng" -n -d tcp.port==2049,rpc -Y 'nfs.opcode == 42 && rpc.msgtyp == 1' -V 2>/dev/null |
        grep -c 'state_protect: SP4_MACH_CRED' || true
}

# Prints how many connections were bound to sessions (BIND_CONN_TO_SESSION), after `protected` has ended the capture.
bound() {
    tshark -r "$K/wire.pcapng" -n -d tcp.port==2049,rpc -Y 'nfs.opcode == 41 && nfs.nfsstat4 == 0 && rpc.msgtyp == 1' 2>/dev/null |
        wc -l
}

# Cuts the connections of all clients.
cut() { ss -HtK "src $ADDRESS:2049" >/dev/null; }

# Stops everything.
leave() {
    kill "$(cat "$K/server.pid")" "$(cat "$K/kdc.pid")"
    ip addr del "$ADDRESS/24" dev "$(ip -o -4 addr show to 10.99.0.1 | awk '{ print $2; exit }')"
}
