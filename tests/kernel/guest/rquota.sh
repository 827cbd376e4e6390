# test: quota shows the quotas of the server's file system
# versions: 2 3 4.2
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
versions = ["2", "3", "4"]
portmap = true
[[export]]
path = "/run/quotas"
squash = "none"
END
"$ENFYS" serve --config "$L/quotas.toml" >"$L/quotas.log" 2>&1 &
server=$!
until_true rpcinfo -t 127.0.0.1 100011 2
rpcinfo -u 127.0.0.1 100011 1 >/dev/null
case $VERSION in
2) options=vers=2,proto=tcp,addr=127.0.0.1,port=2049,mountport=2049,mountproto=tcp,mountvers=1,nolock ;;
3) options=vers=3,port=2049,mountport=2049,mountproto=tcp,nolock ;;
*) options=vers=$VERSION,port=2049 ;;
esac
mount $(mount_flags) -t nfs -o "$options" 127.0.0.1:/export /run/quota.nfs
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
# Linux asks for no quota by version 4: a call of version 4.0 by user 1000 asks for quota_avail_hard, quota_avail_soft and quota_used
# (RFC 7530 §5.8.2.28 to 30) of /export, in bytes.
[ "$VERSION" != 4.2 ] || same '921600 0 1126400' "$(python3 - <<'END'
import socket, struct
def opaque(data): return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)
credential = struct.pack(">I", 1) + opaque(b"guest") + struct.pack(">III", 1000, 1000, 0)
call = struct.pack(">6I", 1, 0, 2, 100003, 4, 1) + struct.pack(">I", 1) + opaque(credential) + struct.pack(">II", 0, 0)
compound = opaque(b"") + struct.pack(">II", 0, 3)
putrootfh, lookup = struct.pack(">I", 24), struct.pack(">I", 15) + opaque(b"export")
getattr_ = struct.pack(">IIII", 9, 2, 0, 0b111 << 6)
message = call + compound + putrootfh + lookup + getattr_
server = socket.socket()
server.bind(("127.0.0.1", 1000))
server.connect(("127.0.0.1", 2049))
server.sendall(struct.pack(">I", 1 << 31 | len(message)) + message)
reply = server.makefile("rb")
length, = struct.unpack(">I", reply.read(4))
body = reply.read(length & 0x7fffffff)
# The reply's head is six words, then the compound's status, its tag, three results and the attributes at the end.
assert struct.unpack(">I", body[24:28]) == (0,), body
print(*struct.unpack(">QQQ", body[-24:]))
END
)" 'the quota by attributes of version 4'
umount /run/quota.nfs
kill "$server"
wait "$server" || true
umount /run/quotas
losetup -d /dev/loop0
