# test: git clone, fsck, commit and repack on the mount
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
# takes: 35
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git config --global safe.directory '*'
git config --global gc.auto 0
git init --quiet --initial-branch=main "$L/origin"
"$PROBE" tree "$L/origin/files" 400
# Objects that git does not store: unreadable files, pipes.
find "$L/origin" -type p -delete
git -C "$L/origin" add --all
git -C "$L/origin" commit --quiet --message first
for change in 1 2 3; do
    echo "$change" >"$L/origin/files/changed"
    git -C "$L/origin" add files/changed
    git -C "$L/origin" commit --quiet --message "change $change"
done

git clone --quiet --no-local "$L/origin" "$D/clone"
git -C "$D/clone" fsck --full --strict
same "$(git -C "$L/origin" rev-parse HEAD)" "$(git -C "$D/clone" rev-parse HEAD)"
same '' "$(git -C "$D/clone" status --porcelain)" 'a fresh clone has changes'
remount
same '' "$(git -C "$D/clone" status --porcelain)" 'after a remount, the clone has changes'

echo more >"$D/clone/files/more"
git -C "$D/clone" add files/more
git -C "$D/clone" commit --quiet --message more
git -C "$D/clone" switch --quiet --create side HEAD~2
git -C "$D/clone" switch --quiet main
git -C "$D/clone" gc --quiet
git -C "$D/clone" fsck --full --strict
git clone --quiet --no-local "$D/clone" "$L/back"
git -C "$L/back" fsck --full --strict
same "$(git -C "$D/clone" rev-parse HEAD)" "$(git -C "$L/back" rev-parse HEAD)"
