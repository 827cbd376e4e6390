#!/bin/bash
# Process 1 of the guest with the kernel's own server: exports an ext4 image and two small file systems in memory.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mount -t tmpfs dev /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/urandom c 1 9
mknod /dev/ubdb b 98 16
kernel=$(uname -r)
mkdir -p /run/rpcbind "/run/modules/lib/modules/$kernel" "$KNFSD_ROOT"
mount --bind "/usr/lib/uml/modules/$kernel" "/run/modules/lib/modules/$kernel"
# Locks wait for the end of this time, which otherwise is 50 s.
modprobe -d /run/modules lockd
echo 10 >/proc/sys/fs/nfs/nlm_grace_period
modprobe -d /run/modules nfsd
mount -t nfsd nfsd /proc/fs/nfsd
# Debian's configuration asks the server's own list of users for groups, and not the client.
mount --bind /dev/null /etc/nfs.conf
# The records of clients are kept in the driver's memory, so that clients can reclaim when this guest is booted again.
mkdir -p /var/lib/nfs/{v4recovery,nfsdcltrack}
: >/var/lib/nfs/etab
: >/var/lib/nfs/rmtab

ip link set lo up
ip addr add "$KNFSD_ADDRESS/24" dev vec0
ip link set vec0 up
ip route add default via "${KNFSD_ADDRESS%.*}.1"

mount -t tmpfs root "$KNFSD_ROOT"
mkdir -p "$KNFSD_ROOT"/{export,space,quota}
mount -t tmpfs space "$KNFSD_ROOT/space"
mount -t tmpfs quota "$KNFSD_ROOT/quota"
mount -t ext4 /dev/ubdb "$KNFSD_ROOT/export" || poweroff -f
rpcbind -w
number=0
for export in / /export /space /quota; do
    mode=rw
    [ "$export" != / ] || mode=ro
    exportfs -o "$mode,$EXPORT_MODE,no_root_squash,insecure,no_subtree_check,fsid=$number" "*:$KNFSD_ROOT$export"
    number=$((number + 1))
done
# Locks of version 3 wait for the status monitor.
mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak
chown statd /var/lib/nfs/sm /var/lib/nfs/sm.bak
rpc.statd --no-notify
rpc.mountd --port "$MOUNT_PORT"
# The driver waits for the port of NFS.
# The kernel takes no shorter time of grace.
rpc.nfsd --grace-time 10 --lease-time 10 4 || poweroff -f
exec sleep infinity
