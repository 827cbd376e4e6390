# test: tar packs a tree on the mount and unpacks it again
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
"$PROBE" tree "$L/original" 1200
tar --create --format=posix --file="$D/from-local.tar" --directory="$L" original
remount
mkdir "$D/unpacked"
tar --extract --warning=no-timestamp --preserve-permissions --file="$D/from-local.tar" --directory="$D/unpacked"
remount
copied "$L/original" "$D/unpacked/original"
# tar reads on the mount what it wrote there.
tar --create --sort=name --file="$L/from-mount.tar" --directory="$D/unpacked" original
tar --compare --file="$L/from-mount.tar" --directory="$L" || fail 'tar sees differences'
gzip -1 <"$D/from-local.tar" >"$D/packed.tar.gz"
gzip --test "$D/packed.tar.gz"
zcat "$D/packed.tar.gz" | cmp - "$D/from-local.tar"
