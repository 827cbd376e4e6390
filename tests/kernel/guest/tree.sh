# test: 2,500 files of this machine, and a tree of 1,500 files of every kind, copied there and back, are the same trees
# versions: 3 4.0 4.1 4.2
# limit: 600
# takes: 80
# Files of Debian's packages: real names, links, modes and sizes. Other tests have large files.
mkdir "$L/original"
(
    cd /usr
    # `head` ends before `sort` has written everything.
    set +o pipefail
    find share include -xdev \( -type d -o -type l -o -type f -size -128k \) -print0 | LC_ALL=C sort -z | head -z -n 2500 |
        tar --create --null --no-recursion --files-from=-
) | tar --extract --directory="$L/original"
# Objects that packages do not have: special files, sparse ones, many links, names of odd bytes.
"$PROBE" tree "$L/original/odd" 1500
"$PROBE" manifest "$L/original" >"$L/original.manifest"
[ "$(wc -l <"$L/original.manifest")" -gt 4000 ] || fail "the tree is too small"
cp -a "$L/original" "$D/tree"
remount
is_tree "$L/original.manifest" "$D/tree"
if on_host; then
    host '"$PROBE" manifest "$H/tree"' >"$L/host"
    cmp "$L/original.manifest" "$L/host" || fail "on the server's disk is another tree"
fi
cp -a "$D/tree" "$L/back"
is_tree "$L/original.manifest" "$L/back"
rm -rf "$D/tree"
same '' "$(ls -A "$D")" "what is left after rm -r"
