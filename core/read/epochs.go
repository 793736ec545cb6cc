package read

import (
	"context"

	"stele.dev/stele/core/commit"
)

// checkLost refuses a revision that was issued before a restore and is in no history any
// more: what its client has seen then, nobody can go on from. The tip is not below it.
func (rd *Reader) checkLost(ctx context.Context, tip *commit.Tip, revision uint64) error {
	if revision >= tip.EpochStart {
		return nil
	}
	return rd.Past.NotLost(ctx, revision)
}
