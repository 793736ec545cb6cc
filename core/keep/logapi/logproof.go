// This file serves tree heads and proofs of the log, see package eventlog/proof:
//
//	/log/head?size=N                           the tree head, as text
//	/log/proof?revision=R&size=N               an inclusion proof, without contents
//	/log/proof/contents?revision=R&size=N      the same with contents
//	/log/consistency?from=M&to=N               a consistency proof
//
// A size that is missing is that of the whole log. Policies grant the paths as nonResourceURLs. A proof shows the
// metadata of any event: who changed which object, and why it was allowed. Only /log/proof/contents shows the content
// of objects, also of Secrets.
//
// Every head that is handed out ends with an event that is never forgotten, so that it can be compared for as long as there is the
// log. For a head of the whole log such an event is appended: recordedAtOnce times at once, and then once in recordHeadEvery. Who asks more
// often gets the newest head that ends with one. A size is refused if its tree ends with something else.
//
// The server signs nothing: it has no key, so that who breaks into it cannot sign another past.

package logapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/proof"
)

// The paths that are served.
const (
	HeadPath          = "/log/head"
	InclusionPath     = "/log/proof"
	ContentsPath      = "/log/proof/contents"
	ConsistencyPath   = "/log/consistency"
	headType          = "text/plain; charset=utf-8"
	documentType      = "application/json"
	revisionParameter = "revision"
	sizeParameter     = "size"
)

// ProofRoutes returns the routes of a log, to which the committer writes. The archive of the log, if it has one, must have
// been set.
func ProofRoutes(log *eventlog.Log, committer *commit.Committer) []nonresource.Route {
	segments, _ := log.Archive().(proof.Segments)
	tree := proof.NewTree(proof.NewSource(log, segments), log.ID())
	tree.SetKeys(log.Keys())
	s := proofService{tree, newHeads(log, tree, committer)}
	return []nonresource.Route{
		{Path: HeadPath, Serve: s.head},
		{Path: InclusionPath, Cost: estimateProof, Serve: func(c *call.Call) error { return s.inclusion(c, false) }},
		{Path: ContentsPath, Cost: estimateProof, Serve: func(c *call.Call) error { return s.inclusion(c, true) }},
		{Path: ConsistencyPath, Cost: estimateProof, Serve: s.consistency},
	}
}

// estimateProof returns the time of a proof, which reads a part of the log.
func estimateProof(*call.Call) time.Duration { return 5 * time.Millisecond }

// proofService answers the calls.
type proofService struct {
	tree  *proof.Tree
	heads *heads
}

func (s proofService) head(c *call.Call) error {
	size, err := number(c.HTTP.URL.Query(), sizeParameter, false)
	if err != nil {
		return err
	}
	var head proof.TreeHead
	if size == 0 {
		head, err = s.heads.newest(c.HTTP.Context())
	} else {
		head, err = s.heads.ofSize(c.HTTP.Context(), size)
	}
	if err != nil {
		return proofRefusal(err)
	}
	return c.Send(headType, http.StatusOK, []byte(head.Text()))
}

// heads hands out heads that stay comparable. It is safe for concurrent use.
type heads struct {
	log       *eventlog.Log
	tree      *proof.Tree
	committer *commit.Committer
	limit     *rate.Limiter
}

// These limit how many events the log gets because users ask for heads.
const (
	recordHeadEvery = time.Minute
	recordedAtOnce  = 10
)

func newHeads(log *eventlog.Log, tree *proof.Tree, committer *commit.Committer) *heads {
	return &heads{log, tree, committer, rate.NewLimiter(rate.Every(recordHeadEvery), recordedAtOnce)}
}

// newest returns the newest head that stays comparable. It has the log record one of the whole log if that is due and the log takes
// it: a log that is full has an older head.
func (h *heads) newest(ctx context.Context) (proof.TreeHead, error) {
	lasting, err := h.lasting(ctx)
	if err != nil || lasting == h.committer.Tip().Revision() || !h.limit.Allow() {
		return h.at(ctx, lasting, err)
	}
	recorded, err := h.committer.RecordHead(ctx)
	if err == nil {
		lasting = recorded
	}
	return h.at(ctx, lasting, ctx.Err())
}

// at returns the head that ends with a batch, unless there is an error.
func (h *heads) at(ctx context.Context, revision uint64, err error) (proof.TreeHead, error) {
	if err != nil {
		return proof.TreeHead{}, err
	}
	return h.tree.HeadAt(ctx, revision)
}

// lasting returns the last revision of the newest batch that is never forgotten. The first one of a log is one.
func (h *heads) lasting(ctx context.Context) (uint64, error) {
	for from := uint64(math.MaxInt64); ; {
		batches, err := h.log.Back(ctx, from, 64)
		if err != nil {
			return 0, err
		}
		for _, b := range batches {
			if retention.KeepsForEver(b) {
				return b.Last(), nil
			}
		}
		if len(batches) == 0 {
			return 1, nil
		}
		from = batches[len(batches)-1].First - 1
	}
}

// errPassing reports that a head would not stay comparable.
var errPassing = errors.New("retention may forget the change with which this tree ends, and its head could then not be compared any more: ask for the newest head, without a size")

// ofSize returns the head of a size, if it stays comparable.
func (h *heads) ofSize(ctx context.Context, size uint64) (proof.TreeHead, error) {
	head, err := h.tree.Head(ctx, size)
	if err != nil {
		return head, err
	}
	batches, err := h.log.Back(ctx, head.Revision, 1)
	if err == nil && (len(batches) == 0 || batches[0].Hash != head.Batch) {
		err = fmt.Errorf("%w: the newest batch of the tree", proof.ErrForgotten)
	}
	if err == nil && !retention.KeepsForEver(batches[0]) {
		err = errPassing
	}
	return head, err
}

func (s proofService) inclusion(c *call.Call, contents bool) error {
	query := c.HTTP.URL.Query()
	revision, err := number(query, revisionParameter, true)
	if err != nil {
		return err
	}
	size, err := number(query, sizeParameter, false)
	if err != nil {
		return err
	}
	p, err := s.tree.Inclusion(c.HTTP.Context(), revision, size, contents)
	if err != nil {
		return proofRefusal(err)
	}
	return c.Send(documentType, http.StatusOK, p.Encode())
}

func (s proofService) consistency(c *call.Call) error {
	query := c.HTTP.URL.Query()
	from, err := number(query, "from", true)
	if err != nil {
		return err
	}
	to, err := number(query, "to", false)
	if err != nil {
		return err
	}
	p, err := s.tree.Consistency(c.HTTP.Context(), from, to)
	if err != nil {
		return proofRefusal(err)
	}
	return c.Send(documentType, http.StatusOK, p.Encode())
}

// number parses a parameter; 0 if it is missing and not required.
func number(query url.Values, name string, required bool) (uint64, error) {
	text := query.Get(name)
	if text == "" && !required {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || len(query[name]) > 1 {
		return 0, status.BadRequestf("%s=%s: want a positive number", name, text)
	}
	return n, nil
}

// proofRefusal returns the API error for an error of the tree.
func proofRefusal(err error) error {
	var forgotten *eventlog.ForgottenError
	switch {
	case errors.Is(err, proof.ErrNoEvent):
		return status.NotFoundf("%v", err)
	case errors.Is(err, proof.ErrNoSize), errors.Is(err, errPassing):
		return status.BadRequest(err.Error())
	case errors.Is(err, proof.ErrForgotten), errors.As(err, &forgotten):
		return status.Expired("%v", err)
	}
	return err
}
