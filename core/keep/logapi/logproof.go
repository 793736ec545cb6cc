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
// The server signs nothing: it has no key, so that who breaks into it cannot sign another past.

package logapi

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"stele.dev/stele/core/call"
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

// ProofRoutes returns the routes of a log. The archive of the log, if it has one, must have been set.
func ProofRoutes(log *eventlog.Log) []nonresource.Route {
	segments, _ := log.Archive().(proof.Segments)
	s := proofService{proof.NewTree(proof.NewSource(log, segments), log.ID())}
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
type proofService struct{ tree *proof.Tree }

func (s proofService) head(c *call.Call) error {
	size, err := number(c.HTTP.URL.Query(), sizeParameter, false)
	if err != nil {
		return err
	}
	head, err := s.tree.Head(c.HTTP.Context(), size)
	if err != nil {
		return proofRefusal(err)
	}
	return c.Send(headType, http.StatusOK, []byte(head.Text()))
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
