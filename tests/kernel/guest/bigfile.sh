# test: a file over 4 GiB: sparse writes, reads across the boundary, truncation
# versions: 3 4.0 4.1 4.2
# exports: sync async
f=$D/big
at() { printf %s "$1" | dd of="$f" bs=1M oflag=seek_bytes seek="$2" conv=notrunc status=none; } # TEXT OFFSET
read_at() { dd if="$f" bs=1M iflag=skip_bytes,count_bytes skip="$1" count="$2" status=none; } # OFFSET COUNT
gib4=$((4 << 30))
at start 0
at across "$((gib4 - 3))"
at far "$((6 * (1 << 30)))"
same "$((6 * (1 << 30) + 3))" "$(stat -c %s "$f")" size
remount
same "$((6 * (1 << 30) + 3))" "$(stat -c %s "$f")" 'size after a remount'
same start "$(read_at 0 5)"
same across "$(read_at "$((gib4 - 3))" 6)"
same oss "$(read_at "$gib4" 3)" 'bytes from 4 GiB on'
same far "$(read_at "$((6 * (1 << 30)))" 100)" 'the end'
read_at "$((gib4 + 1000000))" 3000000 | cmp - <(head -c 3000000 /dev/zero) || fail 'a hole is not zeros'
[ "$(du -k "$f" | cut -f1)" -lt 100000 ] || fail 'a sparse file takes the room of a full one'
# 40 MB of data across the boundary.
head -c 40000001 /dev/urandom >"$L/bytes"
dd if="$L/bytes" of="$f" bs=1M oflag=seek_bytes seek="$((gib4 - 20000000))" conv=notrunc,fsync status=none
remount
read_at "$((gib4 - 20000000))" 40000001 | cmp - "$L/bytes" || fail 'bytes around 4 GiB'
truncate -s "$((gib4 + 1))" "$f"
same "$((gib4 + 1))" "$(stat -c %s "$f")"
truncate -s "$((8 * (1 << 30)))" "$f"
remount
read_at "$((gib4 + 1))" 3000000 | cmp - <(head -c 3000000 /dev/zero) || fail 'what was cut off comes back'
read_at "$((gib4 - 20000000))" 20000001 | cmp - <(head -c 20000001 "$L/bytes") || fail 'what was not cut off is gone'
if on_host; then same "$((8 * (1 << 30)))" "$(host 'stat -c %s "$H/big"')" "size on the server's disk"; fi
rm "$f"
