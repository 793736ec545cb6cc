package pushing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/replicas"
)

// exitNotApplied is the exit code of a push that is in force, while not all replicas have applied it in time.
const exitNotApplied = 4

// waitEvery is the time between two questions. Replicas renew their leases, which say what they have applied, every 10
// seconds.
const waitEvery = time.Second

// waiting waits until all replicas have applied a revision.
type waiting struct {
	// replicas lists the replicas, and ready says whether the server is ready.
	replicas func(context.Context) ([]replicas.ReplicaObject, error)
	ready    func(context.Context) error
	// progress gets a line each time that what is missing changes.
	progress io.Writer
}

// waitForReplicas waits until every live replica has applied a revision and the server is ready, at most for a time. The policy
// is in force whatever it returns.
func (w *waiting) waitForReplicas(ctx context.Context, revision uint64, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	shown := ""
	missing := "nothing was asked yet"
	for {
		text, err := w.missing(limited, revision)
		switch {
		case err == nil && text == "":
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case limited.Err() == nil || err == nil:
			missing = text
		}
		if missing != shown && limited.Err() == nil {
			shown = missing
			fmt.Fprintf(w.progress, "waiting for revision %d: %s\n", revision, missing)
		}
		select {
		case <-time.After(waitEvery):
		case <-limited.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return usage.Exit(exitNotApplied, fmt.Errorf("the policy is in force, but after %v not everywhere: %s", limit, missing))
		}
	}
}

// missing says what has not applied a revision yet; "" if everything has. An error says that the question has no answer.
func (w *waiting) missing(ctx context.Context, revision uint64) (string, error) {
	list, err := w.replicas(ctx)
	if err != nil {
		return "the replicas cannot be listed: " + err.Error(), err
	}
	var behind []string
	for _, r := range list {
		switch {
		case !r.Status.Live:
			behind = append(behind, fmt.Sprintf("replica %s does not renew its lease", r.Name))
		case r.Status.Applied < revision:
			behind = append(behind, fmt.Sprintf("replica %s has applied revision %d", r.Name, r.Status.Applied))
		}
	}
	if err := w.ready(ctx); err != nil {
		if ctx.Err() != nil {
			return "the server does not answer", err
		}
		behind = append(behind, "the server is not ready: "+firstLine(err))
	}
	if len(list) == 0 {
		return "no replica is known", errors.New("no replica is known")
	}
	return strings.Join(behind, "; "), nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
