# test: truncation, modes, owners, links, special files; statfs and df
# versions: 3 4.0 4.1 4.2
# takes: 15
cd "$D"
printf 0123456789 >file
truncate -s 4 file; same 0123 "$(cat file)"
truncate -s 6 file; same '30 31 32 33 00 00' "$(od -An -tx1 file | xargs)"
remount
cd "$D"
same '30 31 32 33 00 00' "$(od -An -tx1 file | xargs)"
: >file; same 0 "$(stat -c %s file)"
for mode in 0 7777 4755 1644 400; do chmod "$mode" file; same "$mode" "$(stat -c %a file)"; done
chown 4294967294:4000000000 file; same 4294967294:4000000000 "$(stat -c %u:%g file)"
chown 0:0 file

ln file second; ln file third
same 3 "$(stat -c %h file)"
same "$(stat -c %i file)" "$(stat -c %i third)"
rm second; same 2 "$(stat -c %h third)"
perl -e 'rename("file", "third") or die $!'; same 2 "$(stat -c %h third)" 'a rename onto another link of the same file does nothing'
rm file third
refused 'hard link not allowed for directory' ln . directory-link
target=$(printf '%04095d' 1)
ln -s "$target" long-link
remount
cd "$D"
same "$target" "$(readlink long-link)" 'a target of 4,095 bytes'
ln -s nowhere dangling; refused 'No such file' cat dangling
ln -s loop loop; refused 'Too many levels of symbolic links' cat loop

mkfifo fifo; mknod block b 7 300; mknod character c 1000 70000
perl -MSocket -e "socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(q(socket))) or die"
remount
cd "$D"
same 'fifo 0 0' "$(stat -c '%F %t %T' fifo)"
same 'block special file 7 12c' "$(stat -c '%F %t %T' block)"
same 'character special file 3e8 11170' "$(stat -c '%F %t %T' character)"
same socket "$(stat -c %F socket)"
(echo through >fifo &) ; same through "$(cat fifo)"

mkdir -p a/b/c; links=$(stat -c %h a)
mkdir a/second
if [ "$links" -gt 1 ]; then same "$((links + 1))" "$(stat -c %h a)" 'links of a directory'; fi
refused 'Directory not empty' rmdir a
refused 'subdirectory of itself' mv a a/b/c
mkdir empty full; touch full/file
mv -T a/second empty
refused 'Directory not empty' mv -T empty full
refused 'Not a directory' rmdir fifo
refused 'Is a directory' unlink full
mv full moved; same file "$(ls moved)"
same "$(stat -c %i .)" "$(stat -c %i moved/..)" 'the parent of a moved directory'
mv a/b moved/b; same "$(stat -c %i moved)" "$(stat -c %i moved/b/..)"

# Sizes and names that the file system reports.
read -r blocks free available size names <<<"$(stat -f -c '%b %f %a %S %l' .)"
[ "$blocks" -gt 0 ] && [ "$free" -le "$blocks" ] && [ "$available" -le "$free" ] && [ "$size" -gt 0 ] || fail "statfs: $blocks $free $available $size"
same 255 "$names" 'longest name'
[ "$(df --output=size . | tail -1)" -gt 0 ]
[ "$(df --output=itotal . | tail -1)" -ge 0 ]
