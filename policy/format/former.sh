#!/bin/sh
# Writes former.txt: the digests of all versions of the definitions that were committed, oldest first.
set -eu
cd "$(dirname "$0")"
for file in policy.cue controlplane/controlplane.cue packs/packs.cue; do
	git log --reverse --format=%H -- "$file" | while read -r commit; do
		git show "$commit:./$file" 2>/dev/null | sha256sum | cut -d' ' -f1
	done
done | awk '!seen[$0]++' >former.txt
