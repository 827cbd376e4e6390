# test: the kernel forgets inodes of enfys's own mount beyond its memory budget, although it cannot be asked to (Linux before 6.18)
# versions: 3 4.0 4.1 4.2
# backends: local guest
# limit: 300
# takes: 80
case $VERSION in
    3) options="version=$VERSION&port=$PORT&mountport=$MOUNT_PORT" ;;
    *) options="version=$VERSION&port=$PORT" ;;
esac
modprobe -d /run/modules fuse
[ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229
mkdir "$L/own"
"$CLIENT" mount "nfs://$SERVER$(export_root)/export/$TEST?$options" "$L/own" -o memory=16
known() { "$CLIENT" stats "$L/own" | awk '$1 == "kernel" { print $2 }'; }
has_forgotten() { [ "$(known)" -lt 4000 ]; }
mkdir "$L/own/d"
cd "$L/own/d"
exec {file}>open
for number in $(seq 6000); do : >"$number"; done
until_true has_forgotten
same 6001 "$(find . -type f | wc -l)" 'files'
until_true has_forgotten
# What programs use stays.
same "$L/own/d" "$(pwd -P)"
echo text >&"$file"
exec {file}>&-
same text "$(cat open)"
cd "$L"
"$CLIENT" umount "$L/own"
same 6001 "$(find "$D/d" -type f | wc -l)" 'files'
