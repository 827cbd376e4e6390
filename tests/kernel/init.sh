#!/bin/bash
# Process 1 of the guest: makes it a machine with a network and the NFS client, then runs the tests in order.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/home LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
# Whatever the tests need is below /run: anything else may hold this project's directory.
mount -t tmpfs run /run
mkdir -p /run/home /run/rpcbind /run/tmp
mount -t tmpfs -o size=1500m tmp /run/tmp
chmod 1777 /run/tmp
export TMPDIR=/run/tmp
# Its own devices: those of the host do not belong to this kernel.
mount -t tmpfs dev /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/zero c 1 5
mknod -m 666 /dev/full c 1 7
mknod -m 666 /dev/random c 1 8
mknod -m 666 /dev/urandom c 1 9
ln -s /proc/self/fd /dev/fd
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
# shellcheck disable=SC1090
. "$GUEST_ENV"

# Debian keeps some modules where modprobe does not look.
kernel=$(uname -r)
mkdir -p "/run/modules/lib/modules/$kernel"
mount --bind "/usr/lib/uml/modules/$kernel" "/run/modules/lib/modules/$kernel"
for module in nfs nfsv2 nfsv3 nfsv4; do modprobe -d /run/modules "$module"; done

ip link set lo up
ip addr add "${GUEST_ADDRESS:-10.99.0.2/24}" dev vec0
ip link set vec0 up
# Users other than root must reach the program, wherever this project's directory is.
install -m 755 "$HOST_PROBE" /run/probe
export PROBE=/run/probe

if [ "$GUEST" = 2 ]; then
    # Another machine, with a disk that keeps what its status monitor records.
    hostname guest2
    ip route add default via "${GUEST_ADDRESS%.*}.1"
    mkdir -p /var/lib/nfs/guest2
    mount --bind /var/lib/nfs/guest2 /var/lib/nfs
    bash "$SCRIPTS/run.sh" "$GUEST_TEST" </dev/null >>"$GUEST_LOG" 2>&1
    echo $? >"$GUEST_STATUS"
    poweroff -f
fi

# A second network, from which `mount_other` mounts: the server sees another client.
ip netns add other
ip link set vec1 netns other
ip -n other link set lo up
ip -n other addr add 10.99.1.2/24 dev vec1
ip -n other link set vec1 up
ip -n other route add default via 10.99.1.1
# The guest with the kernel's own server, if there is one.
ip route add 10.99.2.0/24 via 10.99.0.1

tell() { # a request whose answer does not matter
    exec {channel}<>"/dev/tcp/$DRIVER/$CHANNEL_PORT" && echo "$*" >&"$channel" && cat <&"$channel" >/dev/null
    exec {channel}>&-
}

for entry in $TESTS; do
    test=${entry%:*} limit=${entry#*:}
    tell begin "$test"
    exec {log}<>"/dev/tcp/$DRIVER/$CHANNEL_PORT"
    echo "log $test" >&"$log"
    timeout --kill-after=10 "$limit" bash "$SCRIPTS/run.sh" "$test" </dev/null >&"$log" 2>&1 {log}>&-
    status=$?
    exec {log}>&-
    tell end "$test" "$status"
done
tell done
poweroff -f
