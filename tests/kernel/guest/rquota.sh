# test: quota shows the quotas of the server's file system
# versions: 3 4.2
# backends: local
# A server in this guest, whose kernel has quotas of ext4: RQUOTA over the loopback interface.
for module in loop quota_tree quota_v2; do modprobe -d /run/modules $module; done
[ -b /dev/loop0 ] || mknod /dev/loop0 b 7 0
truncate -s 64M "$L/image"
mkfs.ext4 -q -O quota -E quotatype=usrquota:grpquota "$L/image"
mkdir -p /run/quotas /run/quota.nfs
losetup /dev/loop0 "$L/image"
mount -t ext4 /dev/loop0 /run/quotas
chmod 777 /run/quotas
setquota -u 1000 1000 2000 10 20 /run/quotas
setquota -g 50 0 3000 0 0 /run/quotas
dd if=/dev/zero of=/run/quotas/file bs=1k count=700 status=none conv=fsync
chown 1000:50 /run/quotas/file
cat >"$L/quotas.toml" <<END
listen = ["127.0.0.1:2049"]
state-dir = "$L/quotas.state"
portmap = true
[[export]]
path = "/run/quotas"
squash = "none"
END
"$ENFYS" serve --config "$L/quotas.toml" >"$L/quotas.log" 2>&1 &
server=$!
until_true rpcinfo -t 127.0.0.1 100011 2
rpcinfo -u 127.0.0.1 100011 1 >/dev/null
options="vers=$VERSION,port=2049"
[ "$VERSION" != 3 ] || options="$options,mountport=2049,mountproto=tcp,nolock"
mount -t nfs -o "$options" 127.0.0.1:/export /run/quota.nfs
# told WHOSE…: the numbers of quota(1) about the mount: blocks, quota, limit; files, quota, limit. Its status tells whether one is exceeded.
told() {
    { quota -F rpc -p -w "$@" || true; } | tr -d '*' |
        awk '$1 == "127.0.0.1:/export" { print $2, $3, $4, $6, $7, $8 }'
}
same '700 1000 2000 1 10 20' "$(told -u 1000)" 'the quota of a user'
same '700 0 3000 1 0 0' "$(told -g 50)" 'the quota of a group'
dd if=/dev/zero of=/run/quota.nfs/more bs=1k count=400 status=none conv=fsync
chown 1000:50 /run/quota.nfs/more
same '1100 1000 2000 2 10 20' "$(told -u 1000)" 'the quota of a user above the soft limit'
refused '1100*' quota -F rpc -p -w -u 1000
umount /run/quota.nfs
kill "$server"
wait "$server" || true
umount /run/quotas
losetup -d /dev/loop0
