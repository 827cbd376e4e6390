# test: enfys's own commands and the kernel's mount of the same server see the same files
# versions: 2 3 4.0 4.1 4.2
# backends: local guest
# limit: 600
# takes: 60
# With `--server-kind knfsd` or `ganesha`, other programs are at both other ends.
case $VERSION in
    2 | 3) options="version=$VERSION&port=$PORT&mountport=$MOUNT_PORT" ;;
    *) options="version=$VERSION&port=$PORT" ;;
esac
# url PATH: the URL of a path below the test's directory.
url() { echo "nfs://$SERVER$(export_root)/export/$TEST/$1?$options"; }

"$PROBE" tree "$L/original" 1200
"$CLIENT" cp -r -p "$L/original" "$(url up)"
remount
copied "$L/original" "$D/up"
"$CLIENT" cp -r -p "$(url up)" "$L/back"
copied "$L/original" "$L/back"

# What others write is read, and what is written is read by others.
if [ -z "$ENFYS$KNFSD_ROOT" ] && [ "$VERSION" = 3 ]; then
    # NFS-Ganesha answers the kernel's requests for access control lists, which cp -a makes, with errors.
    mkdir "$D/kernel"
    tar -C "$L/original" --format=posix -c . | tar -C "$D/kernel" -x -p --same-owner
else
    cp -a "$L/original" "$D/kernel"
fi
sync
"$CLIENT" cp -r -p "$(url kernel)" "$L/from-kernel"
copied "$L/original" "$L/from-kernel"

# The same entries, attributes and sizes as findutils and coreutils find on the mount.
remount
(cd "$D/up" && find . -mindepth 1 -printf '%P\0' | LC_ALL=C sort -z) >"$L/names.kernel"
"$CLIENT" find "$(url up)" -mindepth 1 -print0 >"$L/names.urls"
same "$(tr -cd '\0' <"$L/names.kernel" | wc -c)" "$(tr -cd '\0' <"$L/names.urls" | wc -c)" "entries found"
same "$(cd "$D/up" && find . -type f -size +8k | wc -l)" "$("$CLIENT" find "$(url up)" -type f -size +8k | wc -l)" "large files"
same "$(cd "$D/up" && find . -type l | wc -l)" "$("$CLIENT" find "$(url up)" -type l | wc -l)" "symbolic links"

# Changes of names and attributes.
"$CLIENT" mkdir -p "$(url a/b/c)"
echo text >"$L/text"
"$CLIENT" cp "$L/text" "$(url a/b/file)"
"$CLIENT" ln "$(url a/b/file)" "$(url a/second)"
"$CLIENT" ln -s b/file "$(url a/link)"
"$CLIENT" mv "$(url a/b/file)" "$(url a/b/c/moved)"
"$CLIENT" chown 7:8 "$(url a/second)"
"$CLIENT" chmod 4751 "$(url a/second)"
"$CLIENT" touch -d 2001-09-09T01:46:40Z "$(url a/second)"
remount
same text "$(cat "$D/a/b/c/moved")"
same 'b/file' "$(readlink "$D/a/link")"
same '4751 7 8 2 1000000000' "$(stat -c '%a %u %g %h %Y' "$D/a/second")"
same "$(stat -c '%a %u %g %h %s %Y %F' "$D/a/b/c/moved")" "$("$CLIENT" stat -c '%a %u %g %h %s %Y %F' "$(url a/b/c/moved)")"
same text "$("$CLIENT" cat "$(url a/second)")"

# A large file, written by one and read by the other.
head -c 67108877 /dev/urandom >"$L/large"
"$CLIENT" cp "$L/large" "$(url large)"
remount
same_file "$L/large" "$D/large"
"$CLIENT" cat "$(url large)" | cmp - "$L/large" || fail "the large file differs"

# A tree becomes like another one: what is equal is not copied again.
find "$L/back" -type f -delete -quit
echo changed >"$L/back/changed"
"$CLIENT" sync --delete "$L/back" "$(url up)"
remount
copied "$L/back" "$D/up"

refused 'No such file or directory' "$CLIENT" cat "$(url none)"
refused 'Directory not empty' "$CLIENT" rm -d "$(url a)"
"$CLIENT" rm -r "$(url up)" "$(url kernel)" "$(url a)" "$(url large)"
remount
same '' "$(ls -A "$D")" "what is left after rm -r"
