# test: ls, du, df, find, sync, cp between URLs and watch do what coreutils and findutils do on the kernel's mount
# versions: 2 3 4.0 4.1 4.2
# backends: local guest
# limit: 200
# takes: 60
# With `--server-kind knfsd` or `ganesha`, other programs are at both other ends.
case $VERSION in
    2 | 3) options="version=$VERSION&port=$PORT&mountport=$MOUNT_PORT" ;;
    *) options="version=$VERSION&port=$PORT" ;;
esac
base="nfs://$SERVER$(export_root)/export/$TEST"
# url [PATH]: the URL of a path below the test's directory.
url() { echo "$base${1:+/$1}?$options"; }
# Replaces URLs by the paths that programs in the test's directory print.
paths() { sed -E "s#nfs://$SERVER(:$PORT)?$(export_root)/export/$TEST/##g; s#\?version=[^: ]*##g; s#%20# #g"; }
# alike WHAT OF_MOUNT OF_URLS: two files of lines are the same, whatever their order.
alike() {
    diff <(LC_ALL=C sort "$2") <(LC_ALL=C sort "$3") || fail "$1 differs"
    [ -s "$2" ] || fail "$1: nothing"
}

mkdir -p "$L/tree/a/b/c" "$L/tree/empty"
cd "$L/tree"
head -c 3000000 /dev/urandom >large
for size in 0 1 1000 4096 5000 70000; do head -c $size /dev/urandom >a/size-$size; done
for number in $(seq 50); do echo "file $number" >a/b/"file $number"; done
ln -s ../large a/link
ln a/size-1000 a/b/c/second
mkfifo a/fifo
chmod 4750 a/size-4096; chmod 1777 empty; chown 7:8 a/size-5000
find . ! -name '*[05]' -exec touch -h -d 2001-09-09T01:46:40 {} +
touch -d 2010-01-01T00:00:00 a/size-70000
"$CLIENT" cp -a "$L/tree" "$(url tree)"
remount
cd "$D"

# ls: what it prints is the same byte for byte, in the order of bytes.
for flags in -A -l -ln -li -lh -lS -lrt '-l --full-time' -d -ld; do
    # shellcheck disable=SC2086
    LC_ALL=C ls -A $flags tree/a >"$L/mount"
    # shellcheck disable=SC2086
    "$CLIENT" ls $flags "$(url tree/a)" | paths >"$L/urls"
    diff "$L/mount" "$L/urls" || fail "ls $flags differs"
done
for flags in -R -lR -lnR; do
    LC_ALL=C ls -A $flags tree >"$L/mount"
    "$CLIENT" ls $flags "$(url tree)" | paths >"$L/urls"
    diff "$L/mount" "$L/urls" || fail "ls $flags differs"
done

# du and df.
for flags in '' -s -a -ah '-d 1' '--apparent-size -s' -c; do
    # Which name of a file with two is shown depends on the order of the directory.
    # shellcheck disable=SC2086
    du $flags tree | sed 's#a/b/c/second#a/size-1000#' >"$L/mount"
    # shellcheck disable=SC2086
    "$CLIENT" du $flags "$(url tree)" | paths | sed 's#a/b/c/second#a/size-1000#' >"$L/urls"
    alike "du $flags" "$L/mount" "$L/urls"
done
# The kernel rounds to transfer sizes.
total() { awk 'NR == 2 { print $2 }'; }
mount=$(df . | total) urls=$("$CLIENT" df "$(url tree)" | total)
[ $((urls - mount)) -lt 1025 ] && [ $((mount - urls)) -lt 1025 ] || fail "df: $urls 1K-blocks, and $mount on the mount"
same "$(df -i . | total)" "$("$CLIENT" df -i "$(url tree)" | total)" 'df -i'

# find: the same entries.
while read -r expression; do
    # shellcheck disable=SC2086
    find tree $expression >"$L/mount"
    # shellcheck disable=SC2086
    "$CLIENT" find "$(url tree)" $expression | paths >"$L/urls"
    alike "find $expression" "$L/mount" "$L/urls"
done <<'END'
-type f
-type d
-type l
-type p
-maxdepth 1
-mindepth 2 -maxdepth 2
-size +3k
-size -2 -type f
-size 1000c
-size +2M
-name size-* -size -5k
-iname FILE*1
-perm 4750
-perm -1000
-links 2 -type f
-uid 7 -gid 8
-empty
-mtime +1000 -type f
! -name file* -o -name *7
END
find tree -newer tree/a/size-70000 >"$L/mount"
"$CLIENT" find "$(url tree)" -newer "$(url tree/a/size-70000)" | paths >"$L/urls"
alike 'find -newer' "$L/mount" "$L/urls"
same "$(find tree -type f -print0 | tr -cd '\0' | wc -c)" "$("$CLIENT" find "$(url tree)" -type f -print0 | tr -cd '\0' | wc -c)" 'find -print0'
"$CLIENT" find "$(url tree)" -name 'file 1*' -print0 | xargs -0 "$CLIENT" cat >"$L/urls"
find tree -name 'file 1*' -exec cat {} + >"$L/mount"
alike 'what find -print0 passes on' "$L/mount" "$L/urls"

# stat.
for format in '%a %u %g %h %i %s %b %F' '%A %U %G %X %Y %f'; do
    same "$(stat -c "$format" tree/a/size-5000 tree/a/link tree/empty)" \
        "$("$CLIENT" stat -c "$format" "$(url tree/a/size-5000)" "$(url tree/a/link)" "$(url tree/empty)")" "stat -c '$format'"
done
cd "$L"

# From URL to URL of one server. With version 4.2 it copies or clones by itself, if it can.
"$CLIENT" cp -a --json "$(url tree)" "$(url second)" >"$L/json"
remount
copied "$D/tree" "$D/second"
by_server() { tail -1 "$L/json" | grep -Eo '"(cloned|server_copied)":[0-9]+' | awk -F: '{ sum += $2 } END { print sum + 0 }'; }
files=$(find "$D/tree" -type f -size +0 | wc -l)
if [ "$VERSION" = 4.2 ] && [ -n "$ENFYS$KNFSD_ROOT" ]; then
    [ "$(by_server)" -gt 0 ] || fail "the server copied none of $files files: $(tail -1 "$L/json")"
else
    same 0 "$(by_server)" 'files that the server copied'
    refused 'not support' "$CLIENT" cp --reflink=always "$(url tree/large)" "$(url clone)"
fi
"$CLIENT" cp --reflink=never "$(url tree/large)" "$(url plain)"
remount
same_file "$L/tree/large" "$D/plain"

# sync: by size and time, or by content; with or without what the source lacks.
printf x | dd of="$D/second/large" conv=notrunc status=none
touch -r "$L/tree/large" "$D/second/large"
echo more >"$D/second/more"
sync
"$CLIENT" sync "$L/tree" "$(url second)"
remount
[ -e "$D/second/more" ] || fail 'sync without --delete has deleted'
if cmp -s "$L/tree/large" "$D/second/large"; then fail 'sync without --checksum has compared contents'; fi
"$CLIENT" sync --checksum "$L/tree" "$(url second)"
remount
same_file "$L/tree/large" "$D/second/large"
"$CLIENT" sync --delete "$L/tree" "$(url second)"
remount
copied "$D/tree" "$D/second"

# watch: prints changes that were made on the mount.
"$CLIENT" watch --interval 300ms "$(url empty)" 2>/dev/null && fail 'watch of what is missing'
"$CLIENT" watch --interval 300ms "$(url tree)" >"$L/changes" 2>"$L/watching" &
watch=$!
until_true grep -q 'watching' "$L/watching"
mkdir "$D/tree/empty/new"; mv "$D/tree/a/b/file 7" "$D/tree/moved"; rm "$D/tree/a/fifo"
has_printed() { for change in 'created *empty/new' 'renamed *.*file 7.* -> moved' 'removed *a/fifo'; do grep -q "^$change" "$L/changes" || return 1; done; }
until_true has_printed
kill -INT "$watch"
wait "$watch" || fail "watch ended with $?"
