// Package logproof serves tree heads and proofs of the log, see package eventlog/proof:
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
package logproof

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/surface"
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

// Routes returns the routes of a log. The archive of the log, if it has one, must have been set.
func Routes(log *eventlog.Log) []surface.Route {
	segments, _ := log.Archive().(proof.Segments)
	s := service{proof.NewTree(proof.NewSource(log, segments), log.ID())}
	return []surface.Route{
		{Path: HeadPath, Serve: s.head},
		{Path: InclusionPath, Cost: estimate, Serve: func(c *call.Call) error { return s.inclusion(c, false) }},
		{Path: ContentsPath, Cost: estimate, Serve: func(c *call.Call) error { return s.inclusion(c, true) }},
		{Path: ConsistencyPath, Cost: estimate, Serve: s.consistency},
	}
}

// estimate returns the time of a proof, which reads a part of the log.
func estimate(*call.Call) time.Duration { return 5 * time.Millisecond }

// service answers the calls.
type service struct{ tree *proof.Tree }

func (s service) head(c *call.Call) error {
	size, err := number(c.HTTP.URL.Query(), sizeParameter, false)
	if err != nil {
		return err
	}
	head, err := s.tree.Head(c.HTTP.Context(), size)
	if err != nil {
		return refusal(err)
	}
	return c.Send(headType, http.StatusOK, []byte(head.Text()))
}

func (s service) inclusion(c *call.Call, contents bool) error {
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
		return refusal(err)
	}
	return c.Send(documentType, http.StatusOK, p.Encode())
}

func (s service) consistency(c *call.Call) error {
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
		return refusal(err)
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

// refusal returns the API error for an error of the tree.
func refusal(err error) error {
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
