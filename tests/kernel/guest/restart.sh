# test: mount, working directory and open files outlive a killed server, and files moved or removed while it was down
# versions: 3 4.0 4.1 4.2
# backends: local
# limit: 240
echo one >"$D/kept"; echo two >"$D/renamed"; echo three >"$D/removed"; mkdir "$D/directory"
exec 3<>"$D/kept" 4<"$D/renamed"
cd "$D/directory"
sync
server kill
host 'mv "$H/renamed" "$H/directory/elsewhere"; rm "$H/removed"'
server start
# The mount, the working directory and the open files are what they were.
touch here
refused 'No such file' cat "$D/removed"
echo more >&3
# Without a grace period version 4.0's client opens again by name, and does not find what was moved.
if [ "$VERSION" != 4.0 ]; then same two "$(cat <&4)" 'a file renamed while the server was down'; fi
same two "$(cat "$D/directory/elsewhere")"
exec 3>&- 4<&-
same more "$(head -1 "$D/kept")"
[ -e "$D/directory/here" ]
# Twice in a row, with nothing in between.
server restart; server restart
same more "$(head -1 "$D/kept")"
cd /
