package proofs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/filelog"
	"stele.dev/stele/eventlog/verify"
)

// clockSteps is how far the clock may have been set back between two records of one machine.
const clockSteps = time.Hour

// verifiedDecisions is a log of decisions that has been verified.
type verifiedDecisions struct {
	Log      string    `json:"log"`
	Revision uint64    `json:"revision"` // of the newest event
	Since    time.Time `json:"since"`    // of the oldest event that is kept
	Batches  uint64    `json:"batches"`
	Events   uint64    `json:"events"`
	Anchors  int       `json:"anchors"` // heads in the log of record that agree
}

func (v *verifiedDecisions) text() string {
	return fmt.Sprintf("every batch of log %s since %s, up to revision %d: %d with %d events; %d heads in the log agree",
		v.Log, v.Since.UTC().Format(time.RFC3339), v.Revision, v.Batches, v.Events, v.Anchors)
}

// verifyDecisions verifies the log of decisions in a folder, and compares it with its heads in the log of record, which may
// be nil.
func verifyDecisions(ctx context.Context, folder string, record eventlog.Reader) (*verifiedDecisions, error) {
	var heads func(context.Context, time.Time) ([]eventlog.Head, error)
	if record != nil {
		heads = func(ctx context.Context, since time.Time) ([]eventlog.Head, error) {
			return anchors(ctx, record, since)
		}
	}
	found, err := filelog.Verify(ctx, folder, heads)
	if damaged := (*filelog.DamagedError)(nil); errors.As(err, &damaged) {
		return nil, &verify.Difference{Where: damaged.File, What: fmt.Sprintf("byte %d: %s", damaged.Offset, damaged.Reason)}
	}
	if err != nil {
		return nil, &verify.Difference{Where: folder, What: err.Error()}
	}
	return &verifiedDecisions{
		Log: found.Head.Log.String(), Revision: found.Head.Revision, Since: found.Since.UTC(), Batches: found.Batches, Events: found.Events, Anchors: found.Anchors,
	}, nil
}

// anchors returns the heads of logs of decisions that the log has since a moment.
func anchors(ctx context.Context, log eventlog.Reader, since time.Time) (heads []eventlog.Head, err error) {
	for from := uint64(math.MaxInt64); from > 0; {
		batches, err := log.Back(ctx, from, 256)
		if errors.As(err, new(*eventlog.ForgottenError)) {
			return heads, nil
		}
		if err != nil {
			return nil, err
		}
		if len(batches) == 0 {
			break
		}
		for _, b := range batches {
			if b.Time.Before(since.Add(-clockSteps)) {
				return heads, nil
			}
			for _, e := range b.Events {
				if a := e.Meta.GetDecisionsAnchored(); a != nil && len(a.GetLogId()) == len(eventlog.ID{}) && len(a.GetHash()) == len(eventlog.Hash{}) {
					heads = append(heads, eventlog.Head{Log: eventlog.ID(a.GetLogId()), Revision: a.GetRevision(), Hash: eventlog.Hash(a.GetHash())})
				}
			}
			from = b.First - 1
		}
	}
	return heads, nil
}

// runDecisions verifies the log of decisions in the folder of the flags.
func (o *verifyOptions) runDecisions(ctx context.Context, cmd *cobra.Command) error {
	found, err := verifyDecisions(ctx, o.decisions, nil)
	if err != nil {
		return err
	}
	if o.Format != "" {
		return o.Document(cmd, found)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Valid       %s\n", found.text())
	return err
}
