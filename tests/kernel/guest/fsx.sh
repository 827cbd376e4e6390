# test: fsx, a foreign suite: random operations on one file, with every read checked
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
# takes: 30
# Operations of every version, and those of each version.
more=
# Version 4.2 has ALLOCATE and DEALLOCATE; before it, the kernel refuses both.
if [ "$VERSION" = 4.2 ]; then more=$'posix_fallocate = 2\npunch_hole = 2'; fi
cat >"$L/fsx.toml" <<TOML
# Larger than one READ or WRITE.
flen = 4194304

[opsize]
max = 1572864

[weights]
close_open = 1
# Drops the client's cache, so that reads ask the server.
invalidate = 2
fsync = 1
fdatasync = 1
sendfile = 3
posix_fadvise = 1
copy_file_range = 3
$more
TOML
operations=400
for seed in 1 "$RANDOM"; do
    echo "fsx -S $seed -N $operations"
    "$FSX" -f "$L/fsx.toml" -S "$seed" -N "$operations" -P "$L" "$D/fsx"
done
