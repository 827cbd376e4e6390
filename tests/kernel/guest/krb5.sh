# test: Kerberos users, with krb5, krb5i and krb5p; all others are refused; contexts survive a killed server
# versions: 3 4.0 4.1 4.2
# backends: local
# limit: 600
# takes: 70
# The test's own server, and a KDC.
K=${HOST_EXPORT%/*}/krb5
beside() { host ". '$SCRIPTS/kerberos.sh' '$K'; $1"; }
beside 'realm; serve'

# The client is a machine of that realm.
mkdir -p /run/krb5cc /run/rpc_pipefs /run/kerberos
chmod 1777 /run/krb5cc
{ cat /etc/hosts; echo '10.99.0.5 server.enfys.test'; echo '10.99.0.2 client.enfys.test'; } >/run/hosts
mount --bind /run/hosts /etc/hosts
export KRB5_CONFIG=$K/krb5.conf
# Ciphers are modules, which the kernel loads on demand.
printf '#!/bin/sh\nexec /sbin/modprobe -d /run/modules "$@"\n' >/run/modprobe
chmod 755 /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
modprobe -d /run/modules rpcsec_gss_krb5
mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
unshare --uts bash -c 'hostname client.enfys.test; exec rpc.gssd -f -vv -T 60 -k "$1" -p /run/rpc_pipefs -d /run/krb5cc' - \
    "$K/client.keytab" >"$L/gssd.log" 2>&1 &
gssd=$!
# If the test fails, shows the log of the client's daemon.
trap 'kill "$gssd"; tail -n 30 "$L/gssd.log"' EXIT
# The kernel believes that the daemon runs once it has opened this pipe.
listens() { readlink "/proc/$gssd/fd"/* | grep -q '/gssd/clntXX/'; }
until_true listens

# mount_kerberos OPTIONS [EXPORT [DIRECTORY]]
mount_kerberos() {
    mkdir -p "${3:-/run/kerberos}"
    mount -t nfs -o "$(mount_options)${1:+,$1}" "server.enfys.test:${2:-/krb5}" "${3:-/run/kerberos}"
}
# mounted_by FLAVOR: the kernel's view of the mount.
mounted_by() { grep ' /run/kerberos ' /proc/mounts | grep -q "sec=$1," || fail "not mounted by $1: $(grep /run/kerberos /proc/mounts)"; }
alice() { as_user 1234 1234 '' "$@"; }
bob() { as_user 1235 1235 '' "$@"; }
# ticket UID PRINCIPAL
ticket() { echo secret | as_user "$1" "$1" '' kinit -c "FILE:/run/krb5cc/krb5cc_$1" "$2" >/dev/null; }
# asked OPERATION: prints how often the client has sent it over this mount.
asked() {
    awk -v wanted="$1:" '$1 == "device" { ours = $5 == "/run/kerberos" } ours && $1 == wanted { print $2 }' /proc/self/mountstats
}
no_tickets() { rm -f /run/krb5cc/krb5cc_123?; }
# The client releases a mount when its last CLOSE or DELEGRETURN is answered; umount(8) does not wait for that. A mount made before that
# is the same one, with the contexts of users who had tickets.
unmount_kerberos() {
    ! is_forgotten || fail "the mount is not found in $(cat /proc/fs/nfsfs/servers)"
    umount "$D5"
    until_true is_forgotten
}
is_forgotten() { ! grep -qi ' 0a630005 ' /proc/fs/nfsfs/servers; }
D5=/run/kerberos H5=$K/export
head -c 20000001 /dev/urandom >"$L/content"
chmod 644 "$L/content"
chmod 755 "$L"

for flavor in krb5 krb5i krb5p; do
    mount_kerberos "sec=$flavor"
    mounted_by "$flavor"
    refused 'Permission denied' alice touch "$D5/without"
    ticket 1234 alice
    ticket 1235 bob
    alice bash -c "umask 077; echo private >'$D5/$flavor'"
    same private "$(alice cat "$D5/$flavor")"
    refused 'Permission denied' bob cat "$D5/$flavor"
    same '1234 1234 600' "$(host "stat -c '%u %g %a' '$H5/$flavor'")" 'owner on the server'
    # The server's groups count, not the client's.
    host "echo crew >'$H5/crew'; chown 0:4321 '$H5/crew'; chmod 640 '$H5/crew'"
    same crew "$(alice cat "$D5/crew")"
    refused 'Permission denied' bob cat "$D5/crew"
    alice cp "$L/content" "$D5/large.$flavor"
    # Closing does not wait for the write if the file is delegated.
    sync
    host "sha256sum <'$H5/large.$flavor'" >"$L/sum"
    same "$(sha256sum <"$L/content")" "$(cat "$L/sum")" 'a large file on the server'
    echo 3 >/proc/sys/vm/drop_caches
    alice cmp "$L/content" "$D5/large.$flavor"
    alice mkdir "$D5/directory.$flavor"
    alice bash -c "cd '$D5/directory.$flavor'; for i in \$(seq 100); do echo \$i >file.\$i; done; ls | wc -l" >"$L/count"
    same 100 "$(cat "$L/count")"
    unmount_kerberos
    no_tickets
    # A user with a ticket whom the server does not know is the anonymous user.
    mount_kerberos "sec=$flavor"
    ticket 1234 stranger
    alice touch "$D5/stranger.$flavor"
    same 65534 "$(host "stat -c %u '$H5/stranger.$flavor'")" 'owner of what a stranger makes'
    unmount_kerberos
    no_tickets
done

# The export refuses other flavors; without `sec=` the client chooses one of the export's.
refused 'mount.nfs' mount_kerberos sec=sys
mount_kerberos ''
mounted_by krb5p
unmount_kerberos
mount_kerberos sec=sys /plain
echo plain >"$D5/file"
# Closing does not wait for the write if the file is delegated.
sync
same plain "$(host "cat '$K/plain/file'")"
unmount_kerberos
refused 'mount.nfs' mount_kerberos sec=krb5 /plain

# A new server knows no context: the client creates new ones, and keeps its open files and locks.
ticket 1234 alice
[[ $VERSION != 4.[12] ]] || beside listen
mount_kerberos sec=krb5i
# Over a new connection too: if the machine's principal protects the client's state, it must be bound to the session first.
alice bash -c "echo before >'$D5/cut'"
beside cut
alice bash -c "echo behind >>'$D5/cut'"
same 'before behind' "$(alice cat "$D5/cut" | tr '\n' ' ' | sed 's/ $//')"
alice bash -c "exec 3>>'$D5/appended'; for i in \$(seq 60); do echo \$i >&3; sleep 0.1; done; exec 3>&-" &
writer=$!
sleep 2
beside 'crash; serve'
wait "$writer" || fail 'a program was told of the restart'
same "$(seq 60)" "$(alice cat "$D5/appended")"
sync
same "$(seq 60)" "$(host "cat '$H5/appended'")"
if [ "$VERSION" != 3 ]; then
    # A delegation is recalled over a connection whose calls have no credentials.
    reachable 10.99.0.2 "$K/state"
    alice bash -c "echo text >'$D5/delegated'"
    alice bash -c "exec 3<'$D5/delegated'; cat <&3; until [ -e '$L/returned' ]; do sleep 0.1; done" >"$L/reader" &
    reader=$!
    until_true [ -s "$L/reader" ]
    returned=$(asked DELEGRETURN)
    host "\$(dirname \"\$PROBE\")/enfys recall --state-dir '$K/state' /krb5/delegated"
    is_returned() { [ "$(asked DELEGRETURN)" -gt "$returned" ]; }
    until_true is_returned
    touch "$L/returned"
    wait "$reader"
    # The machine's principal has proven who holds the state.
    status=$(host "\$(dirname \"\$PROBE\")/enfys status --json --state-dir '$K/state'")
    [[ $status == *gss:* ]] || fail "no client proved who it is: $status"
    if [[ $VERSION == 4.[12] ]]; then
        [ "$(beside protected)" -gt 0 ] || fail 'no SP4_MACH_CRED'
        [ "$(beside bound)" -gt 0 ] || fail 'no connection was bound'
    fi
    # From / on, each export is entered with its own flavor, unless the client was told to use one flavor only.
    mount_kerberos '' / /run/root
    same plain "$(cat /run/root/plain/file)"
    same private "$(alice cat /run/root/krb5/krb5p)"
    umount -R /run/root
fi
umount "$D5"
no_tickets

trap - EXIT
kill "$gssd"
wait "$gssd" || true
umount /run/rpc_pipefs /etc/hosts
beside leave
