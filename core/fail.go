package core

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/status"
)

// stageHeader is the response header that names the stage at which a request failed.
const stageHeader = "X-Stele-Stage"

// fail answers with the Status of an error, unless the answer has begun.
func (p *Pipeline) fail(r *Request, err error) {
	r.failure = err
	s, internal := status.From(err)
	if internal {
		p.logger.Error("a request failed", "auditID", r.AuditID, "stage", r.Stage, "method", r.HTTP.Method, "path", r.HTTP.URL.Path, "error", err)
	}
	if errors.Is(err, status.ErrUndecided) {
		s.Message += fmt.Sprintf(" (audit id %s)", r.AuditID)
	}
	if r.W.Code != 0 {
		return
	}
	h := r.W.Header()
	h.Del("Content-Length")
	h.Del("ETag")
	h.Set(stageHeader, r.Stage)
	if s.Code == http.StatusForbidden && (r.Stage == "impersonation" || r.Stage == "authorization") {
		h.Set("X-Content-Type-Options", "nosniff") // as upstream in these stages
	}
	status.Spread(s)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	if s.Code == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="stele"`)
	}
	s.Code = cmp.Or(s.Code, http.StatusInternalServerError)
	// An error is sent even if the client accepts none of the formats.
	f, notAccepted := negotiate.Plain(r.HTTP)
	if notAccepted == nil {
		notAccepted = r.WriteJSON(f, int(s.Code), s)
	}
	if notAccepted != nil {
		_ = r.WriteRaw(int(s.Code), s)
	}
}
