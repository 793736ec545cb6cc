package core

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/core/commit"
)

// checkLost refuses a revision that was issued before a restore and is in no history any
// more: what its client has seen then, nobody can go on from. The tip is not below it.
func (p *Pipeline) checkLost(ctx context.Context, tip *commit.Tip, revision uint64) error {
	if revision >= tip.EpochStart {
		return nil
	}
	// What follows the gap is in the history once that has come to any revision in it.
	if err := p.history.Wait(ctx, revision); err != nil {
		return err
	}
	if lost, is := p.history.Lost(revision); is {
		return apierrors.NewResourceExpired(fmt.Sprintf("the resourceVersion %d was lost when this control plane was restored from a backup, with all from %d to %d: there are those before, and those from %d on",
			revision, lost.LostFrom, lost.Next-1, lost.Next))
	}
	return nil
}
