package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/status"
)

// Origins are regular expressions of web origins whose scripts may use the API.
type Origins []*regexp.Regexp

// ParseOrigins compiles expressions. As kube-apiserver does, it rejects expressions that do not fix where the host
// begins and ends: they would match unintended origins (CVE-2022-1996).
func ParseOrigins(expressions []string) (Origins, error) {
	var origins Origins
	var errs []error
	for _, x := range expressions {
		compiled, err := regexp.Compile(x)
		begins := strings.Contains(x, "^") || strings.Contains(x, "//")
		ends := strings.Contains(x, "$") || strings.Contains(x, ":")
		switch {
		case x == "":
			err = errors.New("it is empty")
		case err == nil && !(begins && ends):
			err = errors.New("it does not pin to the start and the end of the host, as //example\\.com(:|$) does")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("origin %q: %w", x, err))
		}
		origins = append(origins, compiled)
	}
	return origins, errors.Join(errs...)
}

func (o Origins) allow(origin string) bool {
	for _, x := range o {
		if x.MatchString(origin) {
			return true
		}
	}
	return false
}

// WithCORS tells browsers what scripts of the origins may do (the Fetch standard's CORS protocol), with
// kube-apiserver's headers. It answers preflight requests, which have no credentials, before authentication.
//
// A browser sends a client certificate by itself, whoever's page it shows. So it refuses writes and WebSockets with a client
// certificate from pages of other origins. kube-apiserver does not.
func WithCORS(next http.Handler, origins Origins) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forged(r) && !origins.allow(r.Header.Get("Origin")) {
			h := w.Header()
			h.Set("Content-Type", "application/json")
			h.Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(status.Refused(schema.GroupResource{}, "", errOtherOrigin).ErrStatus) // a client that disconnected needs no answer
			return
		}
		if len(origins) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" && origins.allow(origin) {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH")
			h.Set("Access-Control-Allow-Headers", "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
			h.Set("Access-Control-Expose-Headers", "Date")
			h.Set("Access-Control-Allow-Credentials", "true")
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// errOtherOrigin says why a request is refused.
var errOtherOrigin = errors.New("a page of another origin has sent it with the client certificate of a browser: allow the origin by --cors-allowed-origins, or use a bearer token")

// forged reports whether a page of another origin may have sent a request with the client certificate of its reader. Browsers say so by
// Sec-Fetch-Site, older ones by Origin; other clients send neither, or their own host. What a page can read of the answers to other
// requests is nothing, without CORS.
func forged(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header["Upgrade"] == nil {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}
