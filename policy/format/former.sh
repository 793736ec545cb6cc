#!/bin/sh
# Adds to former.txt the digests of all versions of the definitions that were committed, and of those in this folder, oldest
# first. What it has stays: the history may be cut off, and a commit has its own version from the start.
set -eu
cd "$(dirname "$0")"
{
	cat former.txt
	for file in policy.cue controlplane/controlplane.cue packs/packs.cue; do
		git log --reverse --format=%H -- "$file" | while read -r commit; do
			git show "$commit:./$file" 2>/dev/null | sha256sum | cut -d' ' -f1
		done
		sha256sum <"$file" | cut -d' ' -f1
	done
} | awk '!seen[$0]++' >former.txt.new
mv former.txt.new former.txt
