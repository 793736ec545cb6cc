package server

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
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
// kube-apiserver's headers. It answers preflight requests, which have no credentials, before authentication. Without
// origins it returns next.
func WithCORS(next http.Handler, origins Origins) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
