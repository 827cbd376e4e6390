# test: names of arbitrary bytes, up to 255 of them; longer ones are refused
# versions: 2 3 4.0 4.1 4.2
long=$(printf 'x%.0s' $(seq 255))
utf8=$(printf 'é%.0s' $(seq 127))x # 255 bytes
names=(
    plain .hidden ' leading' 'trailing ' 'in side' $'new\nline' $'tab\t' 'back\slash' '*?[]{}~$`"'\' '-dash' '#' 'a:b' 'con'
    énfys 彩虹 $'e\xcc\x81nfys' 🌈 $'\xff' $'\xff\xfe\x80' $'\xc3' $'latin-\xe9' $'\x01\x02\x7f' '...' "$long" "$utf8"
)
cd "$D"
for name in "${names[@]}"; do
    printf %s "$name" >"./$name" || fail "cannot create $(printf %q "$name")"
done
remount
cd "$D"
same "${#names[@]}" "$(find . -type f -print0 | tr -dc '\0' | wc -c)" 'number of names'
for name in "${names[@]}"; do
    # To the end of the file, which contains no NUL.
    IFS= read -r -d '' content <"./$name" || true
    same "$name" "$content" "content of the file so named"
done
printf '%s\0' "${names[@]}" | sort -z >"$L/expected"
find . -type f -printf '%P\0' | sort -z | cmp - "$L/expected" || fail 'the names listed are not those made'
if on_host; then
    host 'cd "$H"; find . -type f -printf "%P\0" | sort -z | sha256sum' >"$L/host"
    same "$(sha256sum <"$L/expected")" "$(cat "$L/host")" "names on the server's disk"
fi
# Two spellings of the same letters are different names, and so are cases.
echo composed >$'\xc3\xa9'; echo decomposed >$'e\xcc\x81'
same composed "$(cat $'\xc3\xa9')"
echo upper >CASE; echo lower >case
same upper "$(cat CASE)"

refused 'File name too long' touch "${long}x"
refused 'File name too long' mkdir "${utf8}x"
refused 'File name too long' mv plain "${long}x"
refused 'File name too long' stat "${long}x"
refused 'File exists' mkdir plain
refused 'No such file' cat no-such-file
refused 'Not a directory' cat plain/below
perl -e 'for (@ARGV) { rename($_, "moved") && rename("moved", $_) && unlink($_) or die "$_: $!" }' -- "${names[@]}"
mkdir "$long"; (cd "$long" && mkdir "$long" && cd "$long" && echo deep >"$utf8" && same deep "$(cat "$utf8")")
