package verification

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/core/status"
)

// Path is the path below which projections are verified: GET /log/verify, with ?projection=NAME for some of them.
const Path = "/log/verify"

// Answer is the answer of [Path].
type Answer struct {
	Results []Result `json:"results"`
}

// estimate returns the time of a verification, which reads the whole log.
func estimate(*call.Call) time.Duration { return time.Second }

// Route returns the route of [Path]. It answers when all have been verified.
func (v *Verifier) Route() nonresource.Route {
	return nonresource.Route{Path: Path, Long: true, Cost: estimate, Serve: func(c *call.Call) error {
		results, err := v.Verify(c.HTTP.Context(), c.HTTP.URL.Query()["projection"]...)
		switch {
		case errors.Is(err, ErrUnknown):
			return status.BadRequest(err.Error())
		case err != nil:
			return err
		}
		body, err := json.Marshal(Answer{results})
		if err != nil {
			return err
		}
		return c.Send("application/json", http.StatusOK, body)
	}}
}
