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
// A head of the whole log is recorded in the log, at most once a minute: it ends with an event that is never forgotten, so
// that it can be compared for as long as there is the log. What follows within that minute gets the newest head as it is.
//
// The server signs nothing: it has no key, so that who breaks into it cannot sign another past.

package logapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
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
	s := proofService{tree, &heads{tree: tree, committer: committer}}
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
		head, err = s.tree.Head(c.HTTP.Context(), size)
	}
	if err != nil {
		return proofRefusal(err)
	}
	return c.Send(headType, http.StatusOK, []byte(head.Text()))
}

// heads hands out heads of the whole log. It is safe for concurrent use.
type heads struct {
	tree      *proof.Tree
	committer *commit.Committer

	mu    sync.Mutex
	taken proof.TreeHead // the newest head that is recorded
	at    time.Time      // when the log was last asked to record one
}

// recordHeadEvery is the time between two heads that are recorded.
const recordHeadEvery = time.Minute

// newest returns the newest head. It records it, if that is due and the log takes it: a log that is full has a head, too.
func (h *heads) newest(ctx context.Context) (proof.TreeHead, error) {
	head, err := h.tree.Head(ctx, 0)
	if err != nil || !h.due(head) {
		return head, err
	}
	revision, err := h.committer.RecordHead(ctx)
	if err != nil {
		return head, ctx.Err()
	}
	if head, err = h.tree.HeadAt(ctx, revision); err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.taken = head
	}
	return head, err
}

// due reports whether a head is to be recorded now. It is true once for all who ask within a minute.
func (h *heads) due(head proof.TreeHead) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if head == h.taken || !h.at.IsZero() && time.Since(h.at) < recordHeadEvery {
		return false
	}
	h.at = time.Now()
	return true
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
	case errors.Is(err, proof.ErrNoSize):
		return status.BadRequest(err.Error())
	case errors.Is(err, proof.ErrForgotten), errors.As(err, &forgotten):
		return status.Expired("%v", err)
	}
	return err
}
