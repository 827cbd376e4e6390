# test: a tree of 5,500 files of many kinds, copied there and back, is the same tree
# versions: 3 4.0 4.1 4.2
# limit: 240
"$PROBE" tree "$L/original" 5500
[ "$(find "$L/original" | wc -l)" -gt 5500 ] || fail "the tree is too small"
cp -a "$L/original" "$D/tree"
remount
same_trees "$L/original" "$D/tree"
if on_host; then
    "$PROBE" manifest "$L/original" >"$L/guest"
    host '"$PROBE" manifest "$H/tree"' >"$L/host"
    cmp "$L/guest" "$L/host" || fail "on the server's disk is another tree"
fi
cp -a "$D/tree" "$L/back"
same_trees "$L/original" "$L/back"
rm -rf "$D/tree"
same '' "$(ls -A "$D")" "what is left after rm -r"
